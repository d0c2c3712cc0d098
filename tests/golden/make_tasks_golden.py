"""Writes tasks/: small files in the formats of published multiple-choice data sets, small models,
and their results by lm-eval (EleutherAI's lm-evaluation-harness), which `eval --tasks` must match.

  make_tasks_golden.py                    write all files
  make_tasks_golden.py --model DIRECTORY  print lm-eval's results for an exported model instead
  make_tasks_golden.py --model DIRECTORY --tasks NAME=FILE ...    with other files

  <task>.jsonl              examples, our own sentences, some of them awkward
  gpt2/, llama3/            config.json, model.safetensors (random weights, float32) and the
                            tokenizer of ../subword; llama3 puts BOS before a text
  python_text.json          results of Python's str methods for texts
  <model>.json              by task: examples (log-likelihoods, is_greedy, acc, acc_norm) and means

lm-eval runs its own definitions of the tasks; only the location of the data set is replaced.
"""

import argparse
import json
import os
import pathlib
import shutil
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent / "tasks"
CACHE = tempfile.mkdtemp()  # the environment is read when the libraries are imported
os.environ.update(HF_HOME=CACHE, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")

import lm_eval  # noqa: E402
import torch  # noqa: E402
from lm_eval.api.task import ConfigurableTask  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks._yaml_loader import load_yaml  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

DEFINITIONS = {
    "hellaswag": "hellaswag/hellaswag.yaml",
    "arc_easy": "arc/arc_easy.yaml",
    "arc_challenge": "arc/arc_challenge.yaml",
    "piqa": "piqa/piqa.yaml",
    "lambada_openai": "lambada/lambada_openai.yaml",
}
CONTEXT = 48
VOCABULARY = 424  # of both tokenizers
SPECIAL = {
    "gpt2": {"eos_token": "<|endoftext|>"},
    "llama3": {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"},
}


def hellaswag(activity, a, b, endings, label):
    return {
        "ind": 1,
        "activity_label": activity,
        "ctx_a": a,
        "ctx_b": b,
        "ctx": f"{a} {b}",
        "endings": endings,
        "source_id": "own",
        "split": "val",
        "split_type": "indomain",
        "label": label,
    }


HELLASWAG = [
    hellaswag(
        "Washing a cup",
        "A woman holds a cup under the tap.",
        "she",
        [
            "dries it with a cloth.",
            "sings to the moon.",
            "eats the tap.",
            "paints a wall in green.",
        ],
        "0",
    ),
    hellaswag(
        "Home and Garden",
        "[header] How to water a fern [title] Fill a can with water. "
        "[step] Let it stand for a day.",
        "",
        [
            "[substeps] Pour slowly. Stop when the soil is wet.",
            "Drink it [and wait.",
            "[title] Throw it away.",
            "  Use  two   cans ] of [x] water. ",
        ],
        "3",
    ),
    hellaswag("Skiing", "Über den Hügel", "ÉTÉ ARRIVES Öfter", ["été.", "漢字 😀", "a", "ß"], "2"),
    hellaswag("Sz", "two choices of one meaning", "ßtart ΟΔΟΣ ΣΑΣ", ["the same", "the same"], "1"),
    hellaswag("J", "ǆ", "ǆungla İstanbul ŉ ﬁne", ["I", "ﬁ", "[gone]", "."], "1"),
    hellaswag(
        "Long",
        "the weights of the model are rounded to the nearest code of their block " * 4,
        "  then",
        ["they are read.", "they are\nwritten [on\ntwo] lines", "\u00a0they \t", "they"],
        "0",
    ),
    hellaswag("", "", "", ["one", "two", "three", "four"], "3"),
]


def arc(question, text, key, label=None):
    return {
        "id": "own",
        "question": question,
        "choices": {"text": text, "label": label or list("ABCDE"[: len(text)])},
        "answerKey": key,
    }


ARC = [
    arc("Which of these is a metal?", ["wood", "iron", "wool", "water"], "B"),
    arc("What is 2 + 2?", ["3", "4", "22"], "2", ["1", "2", "3"]),
    arc(
        "A plant needs light because",
        ["it is 'green'", 'it says "\\n"', "it makes sugar", "{{ it }}", "of the rain"],
        "C",
    ),
    arc("Where does a fish live? ", ["in the sea ", " in a tree"], "A"),
    arc("the weights of the model " * 12, ["are rounded", "are lost in the step"], "B"),
]
# lm-eval inspects the choices of the first example, none of which may be empty.
ARC_HARD = [
    arc("", ["a", "aa", "aaa", "aaaa"], "A"),
    arc("Was wächst im Garten: 漢字?", ["ein Baum 😀", "naïve Übergröße", "", "x"], "D"),
]
PIQA = [
    {
        "goal": "To open a jar,",
        "sol1": "turn the lid.",
        "sol2": "turn the lid of the sea.",
        "label": 0,
    },
    {
        "goal": "How do I dry a shoe?",
        "sol1": "put it in water",
        "sol2": "stuff it with paper",
        "label": 1,
    },
    {"goal": "\tgoal with\nlines ", "sol1": " a", "sol2": "b ", "label": 1},
    {"goal": "scale the block " * 16, "sol1": "x" * 30, "sol2": "values of the model", "label": 0},
]
LAMBADA = [
    "she sells sea shells on the sea shore; the shells that she sells are sea shells",
    "the weights of the model are rounded to the nearest",
    "a text with two spaces before the  last",
    "ends with a space ",
    "lines\nand a tab\tcount as one word: \nend",
    "word",
    "été 漢字 naïve Übergröße",
    "x\u00a0 x",
    "the gradient is lost " * 14 + "unless",
]


def files(model):
    """The examples by task. The last words of some LAMBADA texts are the model's prediction."""
    told = [{"text": text} for text in LAMBADA + told_by(model)]
    return {
        "hellaswag": HELLASWAG,
        "arc_easy": ARC,
        "arc_challenge": ARC_HARD,
        "piqa": PIQA,
        "lambada_openai": told,
    }


def told_by(model, count=3):
    """Returns texts whose last word is the most likely token after the word before it."""
    found = []
    for token in range(VOCABULARY):
        text = "a" + model.tok_decode([token])
        ids = model.tok_encode(text)
        with torch.no_grad():
            best = int(model.model(torch.tensor([ids])).logits[0, -1].argmax())
        word = model.tok_decode([best])
        is_word = word.startswith(" ") and word[1:].isalpha()
        if is_word and len(found) < count and model.tok_encode(text + word) == [*ids, best]:
            found.append(text + word)
    return found


def task_of(name, path):
    root = pathlib.Path(lm_eval.__file__).parent / "tasks"
    config = dict(load_yaml(root / DEFINITIONS[name], resolve_func=True))
    for key in ("tag", "dataset_name", "training_split", "validation_split", "test_split"):
        config.pop(key, None)
    config |= {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path)}},
        "test_split": "test",
    }
    return ConfigurableTask(config=config)


def results_of(model, paths, batch_size=None):
    """Returns, by task, log-likelihoods and scores of each example, and means."""
    tasks = {name: task_of(name, path) for name, path in paths.items()}
    found = lm_eval.evaluate(
        lm=model,
        task_dict={"tasks": tasks, "groups": {}, "group_map": {}},
        log_samples=True,
        bootstrap_iters=0,
    )
    results = {}
    for name in paths:
        examples = []
        for sample in sorted(found["samples"][name], key=lambda s: s["doc_id"]):
            replies = [reply[0] for reply in sample["resps"]]
            example = {
                "log_likelihoods": [float(value) for value, _ in replies],
                "acc": float(sample["acc"]),
            }
            if name == "lambada_openai":
                example["is_greedy"] = bool(replies[0][1] in (True, "True"))
            else:
                example["acc_norm"] = float(sample["acc_norm"])
            examples.append(example)
        means = found["results"][name]
        results[name] = {
            "examples": examples,
            **{
                key: means[f"{key},none"]
                for key in ("acc", "acc_norm", "perplexity")
                if f"{key},none" in means
            },
        }
    return results


def loaded(directory):
    return HFLM(pretrained=str(directory), device="cpu", dtype="float32", batch_size=4)


def write_model(name):
    directory = FOLDER / name
    shutil.rmtree(directory, ignore_errors=True)
    torch.manual_seed(20)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            initializer_range=0.7,
            bos_token_id=None,
            eos_token_id=None,
            dtype="float32",
        )
    )
    model.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    shutil.copy(FOLDER.parent / "subword" / f"{name}.json", directory / "tokenizer.json")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **SPECIAL[name]}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    return directory


def python_text():
    """Every character that capitalize() may change, by itself and after another; and texts."""
    texts = ["", " ", "a", "ΟΔΟΣ ΣΑΣ Σ", "AΣ'B AΣ' Σa 1Σ", "ǆUNGLA", "İSTANBUL İ", "ŉ ﬁNE ﬀ ß",
             "  two words\u3000", "\u2003x\u200b ", "\x1c\x1fa\x85", "漢字 😀É"]  # fmt: skip
    for first in range(0, 0x20000, 0x400):
        characters = [chr(c) for c in range(first, first + 0x400) if not 0xD800 <= c < 0xE000]
        changed = [
            c for c in characters if c.capitalize() != c or ("x" + c).capitalize() != "X" + c
        ]
        texts += [c for c in changed if len(c.title()) > 1]
        texts += ["x" + "".join(changed), " ".join(changed)] if changed else []
    return [
        {
            "text": text,
            "capitalize": text.capitalize(),
            "title": "".join(word.capitalize() for word in text.split(" ")),
            "strip": text.strip(),
            "rstrip": text.rstrip(),
            "len": len(text),
        }
        for text in texts
    ]


def dump(value):
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def write_all():
    FOLDER.mkdir(exist_ok=True)
    models = {name: loaded(write_model(name)) for name in SPECIAL}
    paths = {}
    for name, examples in files(models["gpt2"]).items():
        paths[name] = FOLDER / f"{name}.jsonl"
        lines = [json.dumps(example, ensure_ascii=False) + "\n" for example in examples]
        paths[name].write_text("".join(lines), encoding="utf-8")
    (FOLDER / "python_text.json").write_text(dump(python_text()), encoding="utf-8")
    for name, model in models.items():
        (FOLDER / f"{name}.json").write_text(dump(results_of(model, paths)), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--model", type=pathlib.Path, help="an exported model")
    parser.add_argument("--tasks", nargs="+", default=[], metavar="NAME=FILE")
    options = parser.parse_args()
    if options.model:
        paths = dict(pair.split("=", 1) for pair in options.tasks) or {
            name: FOLDER / f"{name}.jsonl" for name in DEFINITIONS
        }
        paths = {name: pathlib.Path(path).resolve() for name, path in paths.items()}
        print(dump(results_of(loaded(options.model), paths)), end="")
    else:
        write_all()
    shutil.rmtree(CACHE, ignore_errors=True)


if __name__ == "__main__":
    main()

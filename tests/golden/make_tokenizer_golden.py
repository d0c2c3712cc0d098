"""Writes tokenizers/: small SentencePiece models, and the libraries' results for texts with them.

  make_tokenizer_golden.py                     train the models and write all files
  make_tokenizer_golden.py --check DIRECTORY   compare an export with its tokenizer.model

<name>.model is a model. <name>.json has its tokenizer.json, assembled here from the model's
protocol buffer with the components of the tokenizers library, and cases of a text and its ids. The
script refuses to write <name>.json if that library and SentencePiece give different ids for a text.
--check loads the directory with transformers' AutoTokenizer and with the tokenizers library; status
1 if ids of a text differ from SentencePiece's.

unigram.model has no .json: "sss" as "s ss" or "ss s" has the same score, and which of them has the
larger sum depends on rounding, to float32 in SentencePiece and to float64 in tokenizers.
"""

import argparse
import io
import itertools
import json
import pathlib
import random
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, decoders, models, normalizers

FOLDER = pathlib.Path(__file__).resolve().parent / "tokenizers"
SPACE = "\u2581"
NORMAL = 1

SENTENCES = [
    "the weights of the model are rounded to the nearest code of their block",
    "a gradient that is smaller than the step of the format is lost, unless it is dithered",
    "she sells sea shells on the sea shore; the shells that she sells are sea shells",
    "for (int i = 0; i < n; ++i) total += values[i] * scale;",
    "def mean(values):  return sum(values) / len(values)",
    "<p>a < b && c > d</p> 0123456789 ABCDEF x /s",
    "l'été, où le café est fermé, Übergrößen, naïve, señor",
    "banana bananas anana ababab abababab aaaa aaaaaaaa mississippi",
]

TEXTS = [
    "",
    " ",
    "   ",
    "the weights of the model",
    " the weights",
    "  the  weights   of ",
    "the\tweights\n\nof the\r\nmodel\n",
    "\n",
    "\t the",
    "for (int i = 0; i < 10; ++i) total += values[i];\n    return total;\n",
    "def mean(values):\n    return sum(values) / len(values)\n",
    "café naïve Übergröße",
    "漢字 and 😀 in a text",
    "😀😀",
    "Здравствуй, мир",
    "e\u0301 combining, \u200d joined, \ufb01 ligature, Ａ wide",
    "\u2581",
    "\u2581\u2581the",
    "the\u2581weights",
    "the \u2581 weights\u2581",
    " \u2581",
    "<s>",
    "</s>",
    "<unk>",
    "<s>the weights</s>",
    "a </s> b <s> c",
    "<0x0A>",
    "<0xE2><0x96>",
    "\u2047 \u2585",
    "x",
    "xx",
    "?",
    "banana bananas",
    "abababababab",
    "aaaaaaaaaaaaaaaaaaaaaaa",
    "bananananana ananab",
    "1234567890",
    "mississippi ississippi",
    " " * 40 + "x" + " " * 17,
    "a" * 300,
    "ab" * 150,
    "banana" * 40,
    " " * 200,
]

SHARED = {
    "character_coverage": 1.0,
    "num_threads": 1,
    "minloglevel": 2,
    "hard_vocab_limit": False,
    "split_digits": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
}
MODELS = {
    "bpe": {"model_type": "bpe", "vocab_size": 480, "byte_fallback": True},
    "bpe_unknown": {"model_type": "bpe", "vocab_size": 200},
    "bpe_squeezed": {
        "model_type": "bpe",
        "vocab_size": 420,
        "byte_fallback": True,
        "remove_extra_whitespaces": True,
        "allow_whitespace_only_pieces": False,
    },
    "bpe_bare": {
        "model_type": "bpe",
        "vocab_size": 420,
        "byte_fallback": True,
        "add_dummy_prefix": False,
        "pad_id": 3,
    },
    "unigram": {"model_type": "unigram", "vocab_size": 420, "byte_fallback": True},
}


def texts_of(seed):
    """The listed texts, and random mixtures of words, spaces and strings that look like pieces."""
    draw = random.Random(seed)
    words = [w for sentence in SENTENCES for w in sentence.split()]
    parts = [
        *words,
        " ",
        "  ",
        "\n",
        SPACE,
        "<s>",
        "</s>",
        "<0x41>",
        "é",
        "漢",
        "😀",
        "x",
        "ab",
        "a",
    ]
    mixtures = ["".join(draw.choices(parts, k=draw.randint(1, 14))) for _ in range(60)]
    spaced = [" ".join(draw.choices(words, k=draw.randint(1, 9))) for _ in range(20)]
    return TEXTS + mixtures + spaced


def train(options):
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 3), model_writer=writer, **(SHARED | options)
    )
    return writer.getvalue()


# --- tokenizer.json by the library's parts -------------------------------------------------------


def splits(piece, normal):
    """Pairs that spell the piece. They have one score in SentencePiece, which takes the left one of
    two that overlap: where (a, b) and (b, c) both spell it, (a, b) ranks first. Where (c, b) and
    (b, a) do as well, the piece repeats a shorter one, and the longer left part ranks first.
    """
    pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
    pairs = [(left, right) for left, right in pairs if left in normal and right in normal]
    ordered = list(pairs)
    for first, second in itertools.combinations(pairs, 2):
        if second[1] == first[0]:
            i, j = ordered.index(first), ordered.index(second)
            ordered[i], ordered[j] = ordered[j], ordered[i]
    return ordered


def merges_of(pieces):
    normal = {p.piece for p in pieces if p.type == NORMAL}
    ranked = sorted((p for p in pieces if p.type == NORMAL), key=lambda p: -p.score)
    return [pair for p in ranked for pair in splits(p.piece, normal)]


def bpe(proto):
    return models.BPE(
        vocab={p.piece: i for i, p in enumerate(proto.pieces)},
        merges=merges_of(proto.pieces),
        unk_token=proto.trainer_spec.unk_piece,
        fuse_unk=True,
        byte_fallback=proto.trainer_spec.byte_fallback,
    )


def normalizer(spec):
    steps = []
    if spec.remove_extra_whitespaces:
        steps += [
            normalizers.Replace(Regex(r"\A +"), ""),
            normalizers.Replace(Regex(r" {2,}"), " "),
        ]
    if spec.add_dummy_prefix:
        steps.append(normalizers.Prepend(SPACE))
    steps.append(normalizers.Replace(" ", SPACE))
    if spec.remove_extra_whitespaces:
        steps.append(normalizers.Replace(Regex(rf"(?:{SPACE})+\z"), ""))
    return normalizers.Sequence(steps)


def decoder(proto):
    steps = [decoders.Replace(SPACE, " ")]
    if proto.trainer_spec.byte_fallback:
        steps.append(decoders.ByteFallback())
    steps.append(decoders.Fuse())
    if proto.normalizer_spec.add_dummy_prefix or proto.normalizer_spec.remove_extra_whitespaces:
        steps.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(steps)


def tokenizer_of(model):
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    tokenizer = Tokenizer(bpe(proto))
    tokenizer.normalizer = normalizer(proto.normalizer_spec)
    tokenizer.decoder = decoder(proto)
    return tokenizer


# --- comparison ----------------------------------------------------------------------------------


def differences(encode, decode, processor, texts):
    """Prints every text whose ids or decoded text differ. Returns their number."""
    wrong = 0
    for text in texts:
        expected, found = processor.encode(text), encode(text)
        again = decode(expected)
        # An unknown piece is "<unk>" in one and " \u2047 " in the other; symbols before a text also
        # differ.
        comparable = processor.unk_id() not in expected and not text.lstrip().startswith(SPACE)
        if found == expected and (again == processor.decode(expected) or not comparable):
            continue
        wrong += 1
        print(f"{text!r}: ids {found}, SentencePiece {expected}; again {again!r}")
    return wrong


def write_golden(name, options):
    model = train(options)
    (FOLDER / f"{name}.model").write_bytes(model)
    if options["model_type"] != "bpe":
        return
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokenizer = tokenizer_of(model)
    texts = texts_of(name)
    wrong = differences(lambda text: tokenizer.encode(text).ids, tokenizer.decode, processor, texts)
    if wrong:
        sys.exit(f"{name}: {wrong} of {len(texts)} texts differ; not written")
    print(f"{name}: {processor.get_piece_size()} pieces, {len(texts)} texts agree")
    content = {
        "tokenizer": json.loads(tokenizer.to_str()),
        "cases": [{"text": text, "ids": processor.encode(text)} for text in texts],
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False) + "\n")


def check(directory):
    from transformers import AutoTokenizer

    model = pathlib.Path(directory) / "tokenizer.model"
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    auto = AutoTokenizer.from_pretrained(directory)
    raw = Tokenizer.from_file(str(pathlib.Path(directory) / "tokenizer.json"))
    texts = texts_of("check")
    libraries = {
        "AutoTokenizer": (lambda text: auto.encode(text, add_special_tokens=False), auto.decode),
        "tokenizers": (lambda text: raw.encode(text, add_special_tokens=False).ids, raw.decode),
    }
    wrong = 0
    for name, (encode, decode) in libraries.items():
        found = differences(encode, decode, processor, texts)
        print(f"{name}: {len(texts) - found} of {len(texts)} texts agree")
        wrong += found
    begins = auto.encode("x")[: len(auto.encode("x")) - len(processor.encode("x"))]
    config = json.loads((pathlib.Path(directory) / "tokenizer_config.json").read_text())
    expected = [processor.bos_id()] if config["add_bos_token"] else []
    if begins != expected:
        sys.exit(f"{directory}: texts begin with {begins}, expected {expected}")
    return wrong


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", metavar="DIRECTORY", help="an export to check")
    arguments = parser.parse_args()
    if arguments.check:
        sys.exit(1 if check(arguments.check) else 0)
    FOLDER.mkdir(exist_ok=True)
    for name, options in MODELS.items():
        write_golden(name, options)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/golden/subword: small tokenizers like those of GPT-2, Llama-3, Qwen2.5 and others,
and the ids that their own libraries give for texts that are hard to split.

    tests/golden/make_subword_golden.py      # needs tokenizers and tiktoken

Made with tokenizers 0.23.3 and tiktoken 0.14.0. A second run gives the same bytes.
"""

import base64
import json
import math
import pathlib
import random

import tiktoken
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    processors,
    trainers,
)
from tokenizers import pre_tokenizers as pre

OUTPUT = pathlib.Path(__file__).resolve().parent / "subword"
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

WORDS = (
    "the of and to in that was his it with is for as had you not be her on at by which have or "
    "token tokenizer naïve Straße élan Ελληνικά русский язык 日本語 中文字符 العربية हिन्दी 한국어 "
    "don't I'm they'll we've he'd she's x1 3.14 2024 1,000 foo_bar() return self; {a: [1, 2]} <b> "
).split()

TEXTS = [
    "",
    " ",
    "  ",
    "\n",
    "a",
    "Hello, world! This is the tokenizer of the day.",
    "don't DON'T I'M i'm they'LL We'Ve he'D 'S 'ſ l'été ''s 's's",
    " leading and trailing  ",
    "tabs\tand\t\ttabs \t mixed\r\nlines\r\n\r\nend\n\n\n",
    "a" + " " * 40 + "b" + "\n" * 12 + "   c",
    "\n  \n   \n",
    "x \n y  \n  z\t",
    "1234567890 12 345 6789 3.14159e-10 ½ ² Ⅷ ١٢٣ 1,000,000",
    'for (int i = 0; i < n; ++i) {\n    x[i] += "str\\n";  // naïve\n}\n',
    "naïve Straße élan ΕΛΛΗΝΙΚΆ Русский язык",
    "日本語と中文字符、한국어 العربية हिन्दी ไทย",
    "e\u0301 e\u0323\u0301 e\u0301\u0323 n\u0303 A\u030a Å \uf900 \ufb01",
    "\u1112\u1161\u11ab 한 \uac00\u11a7 \u1112\u1161 \u11ab",
    "a\u0898\u0327 a\u07fd\u0301 \u32ff \U00011935\U00011930 a\u0315\u0300\u05ae\u0062",
    "👨\u200d👩\u200d👧 🏽🇩🇪❤\ufe0f 1\u20e3 🍎🍎🍎",
    "\u00a0nbsp\u3000ideographic\u2028line\u0085next\u180emongolian\u200bzero\ufeff",
    "\x00\x01\x02\x1f\x7f\x0b\x0c",
    "\u1c89\ua7cb\U000105c0\U00010d40 9\U000116d0 \U00031350\U0002ebf0 \U0001e030",
    "ǅungla İstanbul ſ K Å ß ẞ ﬃ ① Ⓐ 🄰 ª º",
    "!!! ... ??!?! --- *** ((())) <<<>>> $$$ €50 £ § ¶ @#%^&",
    "zzzz" * 60,
    "中" * 90 + "é" * 50,
    "<|endoftext|> <|begin_of_text|>hi<|end_of_text|>\n<|eot_id|><|im_start|>user<|im_end|>",
    "a<|endoftext|>b <|endoftext|  |endoftext|> <tool_call>x</tool_call>",
    "</s> <s> <unk> <pad> <0x0A> <0xE2><0x96> ▁ ▁▁a ▁ ▁",
    "[L]  [R]  [B]x[B] [W] a[W] [W]b [W]. \u0301[W] Ⓐ[W] [N] [n] ﬁx fix  [L][R] ",
    "  [R]   [L]  [R] [R][L]  ",
    "snake_case camelCase HTMLParser iPhone 'Twas x's/y's\n/path//to/\n",
]


def training_texts():
    draw = random.Random(7)
    return [" ".join(draw.choice(WORDS) for _ in range(30)) for _ in range(400)]


def bpe_trainer(size, **options):
    return trainers.BpeTrainer(vocab_size=size, show_progress=False, **options)


def byte_level(regex=False):
    return pre.ByteLevel(add_prefix_space=False, use_regex=regex)


def split(pattern):
    return pre.Sequence([pre.Split(Regex(pattern), "isolated"), byte_level()])


def trained_on_bytes(tokenizer, size):
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = bpe_trainer(size, initial_alphabet=sorted(pre.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(training_texts(), trainer)
    return tokenizer


def special(*names, **options):
    return [AddedToken(name, special=True, normalized=False, **options) for name in names]


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = byte_level(regex=True)
    trained_on_bytes(tokenizer, 420)
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=True)])
    return tokenizer


def llama3():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = split(LLAMA3)
    trained_on_bytes(tokenizer, 420)
    tokenizer.add_special_tokens(
        special(
            "<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|eot_id|>"
        )
    )
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing(
        single="<|begin_of_text|> $A",
        pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
        special_tokens=[("<|begin_of_text|>", begin)],
    )
    tokenizer.post_processor = processors.Sequence([tokenizer.post_processor, template])
    return tokenizer


def qwen2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = split(QWEN2)
    trained_on_bytes(tokenizer, 420)
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    plain = [AddedToken(name, normalized=False) for name in ("<tool_call>", "</tool_call>")]
    tokenizer.add_tokens(plain)
    return tokenizer


def unigram_pieces():
    """Returns characters, pairs and words with logarithms of their shares. The library's trainer is
    not used, because it gives a different model each time."""
    counts = {}
    for word in (f"▁{word}" for text in training_texts() for word in text.split()):
        parts = [*word, *(word[i : i + 2] for i in range(len(word) - 1)), word, word[1:]]
        for part in parts:
            counts[part] = counts.get(part, 0) + 1
    total = sum(counts.values())
    shares = sorted((-count / total, part) for part, count in counts.items())[:300]
    return [(part, round(math.log(-share), 4)) for share, part in shares]


def unigram():
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *unigram_pieces()]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.add_special_tokens(special("<unk>", "<s>", "</s>"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return tokenizer


def unigram_bytes():
    """A unigram model whose unknown characters are spelled in bytes."""
    made = json.loads(unigram().to_str())
    made["model"]["byte_fallback"] = True
    made["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    made["normalizer"] = None
    made["pre_tokenizer"]["prepend_scheme"] = "first"
    made["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    return Tokenizer.from_str(json.dumps(made))


def characters(fuse):
    """Characters instead of bytes, an unknown piece, and all kinds of added tokens."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse))
    tokenizer.normalizer = normalizers.NFKC() if fuse else normalizers.NFD()
    tokenizer.pre_tokenizer = pre.Sequence(
        [
            pre.Split("\n", "removed"),
            pre.Split(Regex(r"[.!?]+"), "merged_with_previous"),
            pre.Split(Regex(r"[(<\[]"), "merged_with_next"),
            pre.Split(Regex(r"[[a-f]\S]"), "contiguous") if fuse else pre.Digits(True),
            pre.Digits(False) if fuse else pre.Split(Regex(r"\s+"), "isolated", invert=True),
            pre.Metaspace(prepend_scheme="first" if fuse else "always", split=fuse),
        ]
    )
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    trainer = bpe_trainer(380, special_tokens=["<unk>", "<pad>"])
    tokenizer.train_from_iterator([t for t in training_texts() for t in t.split()], trainer)
    tokenizer.add_special_tokens(special("[L]", lstrip=True) + special("[R]", rstrip=True))
    tokenizer.add_special_tokens(special("[B]", lstrip=True, rstrip=True))
    tokenizer.add_tokens(
        [
            AddedToken("[W]", single_word=True, normalized=False),
            AddedToken("[N]", normalized=True),
            AddedToken("ﬁx", normalized=True),
            AddedToken("tok", normalized=True),
        ]
    )
    return tokenizer


def write(name, content):
    OUTPUT.mkdir(exist_ok=True)
    (OUTPUT / name).write_text(content, encoding="utf-8")


def case(text, ids, decoded):
    return json.dumps({"text": text, "ids": ids, "decoded": decoded})


def write_cases(name, cases):
    write(f"{name}.cases.json", "[\n" + ",\n".join(cases) + "\n]\n")


def write_tokenizer(name, tokenizer):
    write(f"{name}.json", tokenizer.to_str(pretty=name == "gpt2") + "\n")
    cases = []
    for text in TEXTS:
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        entry = json.loads(case(text, ids, tokenizer.decode(ids)))
        cases.append(json.dumps(entry if plain == ids else {**entry, "ids_of_text": plain}))
    write_cases(name, cases)


def byte_values():
    """Returns the bytes that the characters of a byte-level vocabulary represent."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    values = {chr(byte): byte for byte in printable}
    values.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return values


def write_tiktoken(name, pattern, model):
    values = byte_values()
    pieces = [
        bytes(values[c] for c in text) for text, _ in sorted(model.items(), key=lambda e: e[1])
    ]
    lines = [f"{base64.b64encode(piece).decode()} {rank}\n" for rank, piece in enumerate(pieces)]
    end = {"<|endoftext|>": len(pieces) + 3}
    settings = {"pattern": name, "special_tokens": end, "eos_token": "<|endoftext|>"}
    write(f"{name}.tiktoken", "".join(lines))
    write(f"{name}.tiktoken.json", json.dumps(settings) + "\n")
    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=end)
    cases = []
    for text in TEXTS:
        ids = encoding.encode_ordinary(text)
        cases.append(case(text, ids, encoding.decode(ids)))
    write_cases(f"{name}.tiktoken", cases)


def main():
    made = llama3()
    for name, tokenizer in {
        "gpt2": gpt2(),
        "llama3": made,
        "qwen2": qwen2(),
        "unigram": unigram(),
        "unigram_bytes": unigram_bytes(),
        "characters": characters(fuse=True),
        "characters_unfused": characters(fuse=False),
    }.items():
        write_tokenizer(name, tokenizer)
    model = json.loads(made.to_str())["model"]["vocab"]
    write_tiktoken("cl100k_base", CL100K, model)
    write_tiktoken("o200k_base", O200K, model)


if __name__ == "__main__":
    main()

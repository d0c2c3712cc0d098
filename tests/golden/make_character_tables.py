#!/usr/bin/env python3
"""Writes src/text/subword/later_characters.h: where the tokenizers library's characters differ from
those of PCRE2 and utf8proc, measured over all code points.

    tests/golden/make_character_tables.py      # needs tokenizers, libpcre2-8 and libutf8proc

Made with tokenizers 0.23.3, PCRE2 10.42 (Unicode 14) and utf8proc 2.8 (Unicode 15). A second run
gives the same bytes.
"""

import ctypes
import pathlib

from tokenizers import Regex, normalizers

OUTPUT = pathlib.Path(__file__).resolve().parents[2] / "src/text/subword/later_characters.h"
CODE_POINTS = [c for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF]
CATEGORIES = [
    *("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split())
]
FORMS = ["NFD", "NFC", "NFKD", "NFKC"]

PCRE2 = ctypes.CDLL("libpcre2-8.so.0")
PCRE2.pcre2_compile_8.restype = ctypes.c_void_p
PCRE2.pcre2_match_data_create_8.restype = ctypes.c_void_p
MATCH_DATA = ctypes.c_void_p(PCRE2.pcre2_match_data_create_8(ctypes.c_uint32(10), None))
UTF_AND_UCP = 0x000A0000
UTF8PROC = ctypes.CDLL("libutf8proc.so.2")
LIBC = ctypes.CDLL(None)


def of_library(pattern):
    text = "".join(map(chr, CODE_POINTS))
    left = set(normalizers.Replace(Regex(pattern), "").normalize_str(text))
    return {c for c in CODE_POINTS if chr(c) not in left}


def of_pcre2(pattern):
    code, at = ctypes.c_int(), ctypes.c_size_t()
    text = pattern.encode()
    compiled = ctypes.c_void_p(
        PCRE2.pcre2_compile_8(
            text,
            ctypes.c_size_t(len(text)),
            ctypes.c_uint32(UTF_AND_UCP),
            ctypes.byref(code),
            ctypes.byref(at),
            None,
        )
    )
    assert compiled, pattern

    def matches(character):
        subject = character.encode()
        return (
            PCRE2.pcre2_match_8(
                compiled,
                subject,
                ctypes.c_size_t(len(subject)),
                ctypes.c_size_t(0),
                ctypes.c_uint32(0),
                MATCH_DATA,
                None,
            )
            > 0
        )

    return {c for c in CODE_POINTS if matches(chr(c))}


def ranges_of(code_points):
    ranges = []
    for c in sorted(code_points):
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


def later_ranges():
    """Returns (first, last, name): ranges with a property in the library but not in PCRE2."""
    found = []
    for name, pcre2_name in [(c, c) for c in CATEGORIES] + [("Han", "sc:Han")]:
        library, pcre2 = of_library(f"\\p{{{name}}}"), of_pcre2(f"\\p{{{pcre2_name}}}")
        if pcre2 - library:  # moved to a different category since then
            print(f"\\p{{{name}}} of PCRE2 alone: {ranges_of(pcre2 - library)}")
        found += [(first, last, name) for first, last in ranges_of(library - pcre2)]
    return sorted(found)


def by_utf8proc(form, text):
    function = getattr(UTF8PROC, f"utf8proc_{form}")
    function.restype = ctypes.c_void_p
    memory = function(ctypes.c_char_p(text.encode()))
    result = ctypes.string_at(memory).decode()
    LIBC.free(ctypes.c_void_p(memory))
    return result


def unnormalized():
    """Returns characters that utf8proc changes, orders or joins, but the library does not."""
    # The second part of U+11938, which the library does not join; and the character that utf8proc
    # 2.8 drops after a Hangul syllable (a bug of utf8proc).
    found = {0x11930, 0x11A7}
    for form in FORMS:
        library = getattr(normalizers, form)().normalize_str
        for c in CODE_POINTS:
            if library(chr(c)) != by_utf8proc(form, chr(c)):
                assert library(chr(c)) == chr(c), hex(c)
                found.add(c)
    library = normalizers.NFD().normalize_str
    for c in CODE_POINTS:
        for text in (f"a\u0315{chr(c)}", f"a{chr(c)}\u0327\u0334"):
            if library(text) != by_utf8proc("NFD", text) and library(chr(c)) == chr(c):
                before, after = text.split(chr(c))
                assert library(text) == library(before) + chr(c) + library(after), hex(c)
                found.add(c)
    return ranges_of(found)


HEAD = """// Written by tests/golden/make_character_tables.py: where PCRE2 and utf8proc differ from
// the tokenizers library, over all code points.
//
// PCRE2 10.42 knows the characters of Unicode 14. The regular expressions of tokenizers and of
// tiktoken know those of Unicode 16. The library's normal forms know few that are newer than
// Unicode 9. What a newer PCRE2 or utf8proc knows beyond both is not in these tables.
#pragma once

#include <cstdint>
#include <string_view>

namespace mpt {

struct CharacterRange {
  char32_t first, last;
  std::string_view property = {};
};

// In the property for the library, not for PCRE2. Sorted.
"""


def lines_of(entries):
    lines, line = [], "   "
    for entry in entries:
        if len(line) + len(entry) > 98:
            lines.append(line)
            line = "   "
        line += f" {entry}"
    return "\n".join([*lines, line]) + "\n"


def main():
    later = [f'{{0x{a:X}, 0x{b:X}, "{name}"}},' for a, b, name in later_ranges()]
    kept = [f"{{0x{a:X}, 0x{b:X}}}," for a, b in unnormalized()]
    OUTPUT.write_text(
        HEAD
        + "// clang-format off\n"
        + "inline constexpr CharacterRange kLaterCharacters[] = {\n"
        + lines_of(later)
        + "};\n\n"
        + "// Stay as they are in every normal form of the library, and nothing joins or passes\n"
        + "// them. Sorted.\n"
        + "inline constexpr CharacterRange kNeverNormalized[] = {\n"
        + lines_of(kept)
        + "};\n// clang-format on\n\n}  // namespace mpt\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()

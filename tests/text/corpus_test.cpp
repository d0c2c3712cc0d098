// The corpus reader: document rules, gzip, JSON lines, bad input, bounded memory.
#include "text/corpus/corpus.h"

#include <algorithm>
#include <numeric>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "core/text/utf8.h"
#include "data/data_files.h"

namespace mpt {
namespace {

using test::error_of;
using test::expect_error;
using test::fresh_directory;
using test::write_text;
using Documents = std::vector<std::string>;

Documents documents_of(CorpusReader& corpus) {
  Documents documents;
  for (std::string text; corpus.next(text);) documents.push_back(text);
  return documents;
}
Documents documents_of(const CorpusOptions& options) {
  CorpusReader corpus(options);
  return documents_of(corpus);
}
Documents documents_in(const std::string& name, std::string_view content) {
  return documents_of({.patterns = {write_text(fresh_directory() + "/" + name, content)}});
}

TEST(PlainText, BlankLinesSeparateDocuments) {
  EXPECT_EQ(documents_in("a.txt", "one\n\ntwo\nlines\n\n\n \t\n\nthree"),
            (Documents{"one", "two\nlines", "three"}));
  EXPECT_EQ(documents_in("a.txt", "\n\n\nfirst\n"), (Documents{"first"}));
  EXPECT_EQ(documents_in("a.txt", "no line end"), (Documents{"no line end"}));
  EXPECT_EQ(documents_in("a.txt", "  indented\n\tlines stay  \n"),
            (Documents{"  indented\n\tlines stay"}));
  EXPECT_EQ(documents_in("a.txt", ""), Documents{});
  EXPECT_EQ(documents_in("a.txt", "\n \n\n"), Documents{});
}

TEST(PlainText, CarriageReturnsAndByteOrderMark) {
  EXPECT_EQ(documents_in("a.txt", "one\r\nmore\r\n\r\ntwo\r\n"), (Documents{"one\nmore", "two"}));
  EXPECT_EQ(documents_in("a.txt", "\xEF\xBB\xBFone\n\n\xEF\xBB\xBFtwo"),
            (Documents{"one", "\xEF\xBB\xBFtwo"}));
}

TEST(PlainText, LongTextWithoutBlankLinesIsCutAtWhiteSpace) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += fmt::format("word{} ", i);
  const std::string path = write_text(fresh_directory() + "/a.txt", text);
  CorpusReader corpus({.patterns = {path}, .max_document_bytes = 1000});
  const Documents documents = documents_of(corpus);
  EXPECT_GE(documents.size(), text.size() / 1000);
  EXPECT_EQ(corpus.stats().cuts, std::ssize(documents) - 1);
  std::string joined;
  for (const std::string& document : documents) {
    EXPECT_LE(document.size(), 1000u);
    joined += document + " ";
  }
  EXPECT_EQ(joined, text);
}

TEST(PlainText, LongTextWithoutWhiteSpaceIsCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += i % 3 == 0 ? "é" : "漢";
  for (const int64_t limit : {16, 17, 18, 19, 1000}) {
    const std::string path = write_text(fresh_directory() + "/a.txt", text);
    const Documents documents = documents_of({.patterns = {path}, .max_document_bytes = limit});
    std::string joined;
    for (const std::string& document : documents) {
      EXPECT_LE(std::ssize(document), limit);
      EXPECT_EQ(valid_utf8_prefix(document), document.size());
      joined += document;
    }
    EXPECT_EQ(joined, text);
  }
}

TEST(PlainText, CutTextKeepsItsLineNumbers) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "a line of text\n";
  text += "bad \xff byte\n";
  const std::string path = write_text(fresh_directory() + "/a.txt", text);
  expect_error([&] { documents_of({.patterns = {path}, .max_document_bytes = 100}); },
               {path + ":301:", "UTF-8", "0xff"});
}

TEST(PlainText, ManyEndlessBlanksAreNoDocument) {
  const std::string path =
      write_text(fresh_directory() + "/a.txt", std::string(100'000, ' ') + "end");
  EXPECT_EQ(documents_of({.patterns = {path}, .max_document_bytes = 1000}).back().back(), 'd');
}

TEST(JsonLines, TakesTheTextFieldOfC4Records) {
  const Documents documents = documents_in(
      "c4.json",
      R"({"text":"Caf\u00e9 \ud83d\ude00\nnext \"line\"","timestamp":"2019-04-25T12:57:54Z","url":"https://a.org/"})"
      "\n"
      R"({"url": "https://b.org/", "text": "second", "extra": {"text": "not this", "n": [1, 2]}})"
      "\r\n\n  \n"
      R"({"text": "third"})");
  EXPECT_EQ(documents, (Documents{"Café 😀\nnext \"line\"", "second", "third"}));
}

TEST(JsonLines, OtherFieldNamesAndEmptyDocuments) {
  const std::string path =
      write_text(fresh_directory() + "/a.jsonl",
                 "{\"body\":\"x\"}\n{\"body\":\"\"}\n{\"body\":\" \\n \"}\n{\"body\":\"y\"}\n");
  CorpusReader corpus({.patterns = {path}, .text_field = "body"});
  EXPECT_EQ(documents_of(corpus), (Documents{"x", "y"}));
  EXPECT_EQ(corpus.stats().empty, 2);
  EXPECT_EQ(corpus.stats().documents, 2);
  EXPECT_EQ(corpus.stats().text_bytes, 2);
}

TEST(JsonLines, LongDocumentIsCut) {
  const std::string text(2500, 'x');
  const std::string path = write_text(fresh_directory() + "/a.jsonl",
                                      "{\"text\":\"" + text + "\"}\n{\"text\":\"next\"}\n");
  const Documents documents = documents_of({.patterns = {path}, .max_document_bytes = 1000});
  EXPECT_EQ(documents,
            (Documents{text.substr(0, 1000), text.substr(0, 1000), text.substr(0, 500), "next"}));
}

struct BadLine {
  const char* line;
  const char* message;
};

TEST(JsonLines, BadLinesAreNamedOrSkipped) {
  const std::vector<BadLine> lines{
      {"{\"text\": \"open", "not a JSON object"},
      {"not json", "not a JSON object"},
      {"{\"text\": \"a\"} trailing", "not a JSON object"},
      {"[{\"text\": \"a\"}]", "found array"},
      {"\"text\"", "found string"},
      {"{\"txt\": \"a\", \"url\": \"b\"}", "no field 'text'; the object has: txt, url"},
      {"{}", "no fields"},
      {"{\"text\": null}", "field 'text' is null"},
      {"{\"text\": 3}", "field 'text' is number"},
      {"{\"text\": [\"a\"]}", "field 'text' is array"},
      {"{\"text\": \"\xff\"}", "field 'text' is not UTF-8 at byte 0 (0xff)"},
      {"{\"text\": \"a\\n\\ud800\"}", "'text' has half of a surrogate pair at byte 2, \\ud800"},
      {"{\"text\": NaN}", "field 'text' is number"},
      {"{\"text\": \"good\", \"score\": 01}", "not a JSON object"},
  };
  const std::string directory = fresh_directory();
  for (const BadLine& bad : lines) {
    SCOPED_TRACE(bad.line);
    const std::string path =
        write_text(directory + "/a.jsonl",
                   fmt::format("{{\"text\":\"one\"}}\n{}\n{{\"text\":\"two\"}}\n", bad.line));
    expect_error([&] { documents_of({.patterns = {path}}); }, {path + ":2:", bad.message});
    CorpusReader skipping({.patterns = {path}, .on_bad_document = OnBadDocument::kSkip});
    EXPECT_EQ(documents_of(skipping), (Documents{"one", "two"}));
    EXPECT_EQ(skipping.stats().bad, 1);
  }
}

// An error in another field, or in its parsed value, does not affect the text.
TEST(JsonLines, OtherFieldsMayHoldAnything) {
  for (const char* other :
       {R"("score":1e999)", R"("score":-1e999)", R"("score":1e-999)", R"("score":NaN)",
        R"("score":[Infinity,-Infinity])", R"("title":"cut \ud83d")", R"("title":"\ude00 cut")",
        "\"title\":\"\xff\"", R"("\ud83d":{"text":"\ud83d"})",
        R"("id":123456789012345678901234567890)"})
    for (const std::string& line : {fmt::format("{{\"text\":\"good\",{}}}", other),
                                    fmt::format("{{{},\"text\":\"good\"}}", other)})
      EXPECT_EQ(documents_in("a.jsonl", line + "\n"), Documents{"good"}) << line;
}

TEST(JsonLines, DeepNestingDoesNotCrash) {
  const std::string deep = std::string(200'000, '[') + "\n{\"text\":\"a\"}\n";
  const std::string path = write_text(fresh_directory() + "/a.jsonl", deep);
  EXPECT_EQ(documents_of({.patterns = {path}, .on_bad_document = OnBadDocument::kSkip}),
            Documents{"a"});
  const std::string closed =
      "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + ",\"text\":\"b\"}\n";
  EXPECT_EQ(documents_in("b.jsonl", closed), Documents{"b"});
}

TEST(JsonLines, TheLastFieldOfANameCountsAndOnlyOutermostOnes) {
  EXPECT_EQ(documents_in("a.jsonl",
                         "{\"text\":\"a\",\"text\":\"b\"}\n"
                         "{\"text\":\"c\",\"x\":{\"text\":3},\"y\":[{\"text\":4},\"d\"]}\n"
                         "{\"text\":[\"e\"],\"text\":\"f\"}\n"),
            (Documents{"b", "c", "f"}));
  const std::string path =
      write_text(fresh_directory() + "/b.jsonl", "{\"text\":\"a\",\"text\":null}\n");
  expect_error([&] { documents_of({.patterns = {path}}); }, {"field 'text' is null"});
}

TEST(JsonLines, AMessageNamesNotAllOfVeryManyKeys) {
  std::string line = "{\"a\":{\"inner\":1}";
  for (int i = 0; i < 1000; ++i) line += fmt::format(",\"key{}\":[{}]", i, i);
  const std::string path = write_text(fresh_directory() + "/a.jsonl", line + "}\n");
  const std::string message = error_of([&] { documents_of({.patterns = {path}}); });
  EXPECT_NE(message.find("the object has: a, key0, key1, key10, "), std::string::npos) << message;
  EXPECT_EQ(message.find("inner"), std::string::npos);
  EXPECT_LT(message.size(), 1000u);
}

// Small pieces of a long line once moved the whole remainder, again and again: 8 TiB here.
TEST(JsonLines, ManyPiecesOfALongLine) {
  const std::string text(16 << 20, 'x');
  const std::string path =
      write_text(fresh_directory() + "/a.jsonl", "{\"text\":\"" + text + "\"}\n");
  CorpusReader corpus({.patterns = {path}, .max_document_bytes = 16});
  int64_t pieces = 0;
  for (std::string piece; corpus.next(piece);) ++pieces;
  EXPECT_EQ(pieces, 1 << 20);
}

// The end of the line was once searched for in everything read so far, at every piece.
TEST(PlainText, ManyPiecesOfALongLine) {
  const std::string path = write_text(fresh_directory() + "/a.txt", std::string(16 << 20, 'x'));
  CorpusReader corpus({.patterns = {path}, .max_document_bytes = 16});
  int64_t pieces = 0;
  for (std::string piece; corpus.next(piece);) ++pieces;
  EXPECT_EQ(pieces, 1 << 20);
}

TEST(PlainText, InvalidUtf8IsNamedOrSkipped) {
  const std::string path =
      write_text(fresh_directory() + "/a.txt", "good\n\nbad\nline \xC3( here\n\nalso good\n");
  expect_error([&] { documents_of({.patterns = {path}}); }, {path + ":4:", "0xc3"});
  CorpusReader skipping({.patterns = {path}, .on_bad_document = OnBadDocument::kSkip});
  EXPECT_EQ(documents_of(skipping), (Documents{"good", "also good"}));
  EXPECT_EQ(skipping.stats().bad, 1);
}

TEST(Gzip, BothKindsAndSeveralMembers) {
  EXPECT_EQ(documents_in("a.txt.gz", test::gzip("one\n\ntwo\n")), (Documents{"one", "two"}));
  EXPECT_EQ(documents_in("a.json.gz", test::gzip("{\"text\":\"x\"}\n")), (Documents{"x"}));
  const std::string members =
      test::gzip("on") + test::gzip("") + test::gzip("e\n\nt") + test::gzip("wo\n");
  EXPECT_EQ(documents_in("a.txt.gz", members), (Documents{"one", "two"}));
  EXPECT_EQ(documents_in("a.txt.gz", members + std::string(512, '\0')), (Documents{"one", "two"}));
  EXPECT_EQ(documents_in("a.txt", test::gzip("known by content")), (Documents{"known by content"}));
  EXPECT_EQ(documents_in("a.txt.gz", test::gzip("")), Documents{});
}

TEST(Gzip, LargeFilesOfManyMembersAreReadWhole) {
  std::string content, plain;
  for (int i = 0; i < 40; ++i) {
    const std::string part = test::generated_text(static_cast<uint32_t>(i), 5000) + "\n\n";
    plain += part;
    content += test::gzip(part);
  }
  EXPECT_GT(content.size(), size_t{300'000});  // more than one buffer
  EXPECT_EQ(documents_in("a.txt.gz", content), documents_in("a.txt", plain));
}

TEST(Gzip, TruncatedDamagedAndTrailedFilesAreErrors) {
  const std::string directory = fresh_directory(), path = directory + "/a.txt.gz";
  const std::string good = test::gzip(test::generated_text(3, 5000));
  const CorpusOptions skipping{.patterns = {path}, .on_bad_document = OnBadDocument::kSkip};
  for (const size_t size :
       {size_t{2}, size_t{9}, good.size() / 2, good.size() - 8, good.size() - 1}) {
    write_text(path, good.substr(0, size));
    expect_error([&] { documents_of(skipping); }, {path, "truncated"});
  }
  std::string damaged = good;
  damaged[good.size() / 2] = static_cast<char>(damaged[good.size() / 2] ^ 0x55);
  write_text(path, damaged);
  expect_error([&] { documents_of(skipping); }, {path, "gzip"});
  damaged = good;
  damaged[good.size() - 6] = static_cast<char>(damaged[good.size() - 6] ^ 1);  // its checksum
  write_text(path, damaged);
  expect_error([&] { documents_of(skipping); }, {path, "damaged gzip"});
  write_text(path, good + "garbage");
  expect_error([&] { documents_of(skipping); }, {path, "not gzip"});
  write_text(path, "plain text");
  expect_error([&] { documents_of(skipping); }, {path, "named .gz"});
  write_text(path, "");
  expect_error([&] { documents_of(skipping); }, {path, "named .gz"});
}

TEST(Zstd, BothKindsSeveralFramesAndOnesToSkip) {
  EXPECT_EQ(documents_in("a.txt.zst", test::zstd("one\n\ntwo\n")), (Documents{"one", "two"}));
  EXPECT_EQ(documents_in("a.jsonl.zst", test::zstd("{\"text\":\"x\"}\n")), (Documents{"x"}));
  const std::string skipped = std::string("\x5f\x2a\x4d\x18\x03\x00\x00\x00", 8) + "any";
  const std::string frames = skipped + test::zstd("on") + test::zstd("") + skipped +
                             test::zstd("e\n\nt") + test::zstd("wo\n");
  EXPECT_EQ(documents_in("a.md.zst", frames), (Documents{"one", "two"}));
  EXPECT_EQ(documents_in("a.txt", test::zstd("known by content")), (Documents{"known by content"}));
  EXPECT_EQ(documents_in("a.txt.zst", test::zstd("")), Documents{});
}

// Written by another program: a frame to skip, two frames of half a text with checksums, an empty
// one.
TEST(Zstd, ReadsWhatTheZstandardLibraryOfPythonWrites) {
  const std::string goldens = MPT_SOURCE_DIR "/tests/golden/parquet/documents.jsonl";
  EXPECT_EQ(documents_of({.patterns = {goldens + ".zst"}}), documents_of({.patterns = {goldens}}));
}

TEST(Zstd, LargeFilesOfManyFramesAreReadWhole) {
  std::string content, plain;
  for (int i = 0; i < 40; ++i) {
    const std::string part = test::generated_text(static_cast<uint32_t>(i), 5000) + "\n\n";
    plain += part;
    content += test::zstd(part);
  }
  EXPECT_GT(content.size(), size_t{300'000});  // more than one buffer
  EXPECT_EQ(documents_in("a.txt.zst", content), documents_in("a.txt", plain));
}

TEST(Zstd, TruncatedDamagedAndTrailedFilesAreErrors) {
  const std::string path = fresh_directory() + "/a.txt.zst";
  const std::string good = test::zstd(test::generated_text(3, 5000));
  const auto refuse = [&](const std::string& content, const std::string& part) {
    write_text(path, content);
    expect_error(
        [&] { documents_of({.patterns = {path}, .on_bad_document = OnBadDocument::kSkip}); },
        {path + ": ", part});
  };
  for (const size_t size : {size_t{4}, size_t{9}, good.size() / 2, good.size() - 1})
    refuse(good.substr(0, size), "the zstd data is truncated");
  std::string damaged = good;
  damaged[6] = static_cast<char>(damaged[6] ^ 0x55);
  refuse(damaged, "zstd");
  refuse(good + "garbage", "is not zstd");
  refuse("plain text", "named .zst");
  refuse("", "named .zst");
  // A frame of unknown length and a window of 2^28 bytes: RFC 8878, 3.1.1.1.2.
  refuse(std::string("\x28\xb5\x2f\xfd\x00\x90\x01\x00\x00", 9), "window of more than 128 MiB");
}

Documents documents_by(DocumentUnit unit, const std::string& content, int64_t limit = 1 << 20) {
  const std::string path = write_text(fresh_directory() + "/a.md", content);
  return documents_of({.patterns = {path}, .max_document_bytes = limit, .document = unit});
}

TEST(PlainText, ADocumentIsAParagraphALineOrAFile) {
  const std::string text = "one\nmore\r\n\n \n  two  \nend";
  EXPECT_EQ(documents_by(DocumentUnit::kParagraph, text), (Documents{"one\nmore", "  two  \nend"}));
  EXPECT_EQ(documents_by(DocumentUnit::kLine, text), (Documents{"one", "more", "  two", "end"}));
  EXPECT_EQ(documents_by(DocumentUnit::kFile, text), (Documents{"one\nmore\n\n \n  two  \nend"}));
  EXPECT_EQ(documents_by(DocumentUnit::kFile, "\n\n a\n\n\n"), (Documents{"\n\n a"}));
  EXPECT_EQ(documents_by(DocumentUnit::kFile, ""), Documents{});
  EXPECT_EQ(documents_by(DocumentUnit::kLine, ""), Documents{});
  const std::string path = write_text(fresh_directory() + "/a.txt", "a\n\n \nb\n");
  CorpusReader corpus({.patterns = {path}, .document = DocumentUnit::kLine});
  EXPECT_EQ(documents_of(corpus), (Documents{"a", "b"}));
  EXPECT_EQ(corpus.stats().empty, 2);
}

TEST(PlainText, FilesAndLinesAreCutLikeParagraphs) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += fmt::format("word{}{}", i, i % 7 == 0 ? "\n\n" : " ");
  std::string joined;
  for (const std::string& piece : documents_by(DocumentUnit::kFile, text, 1000)) {
    EXPECT_LE(piece.size(), 1000u);
    joined += piece + " ";
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(joined.begin(), joined.end(), '\n', ' ');
  std::erase(text, ' ');
  std::erase(joined, ' ');
  EXPECT_EQ(joined, text);
  EXPECT_EQ(
      documents_by(DocumentUnit::kLine, std::string(2500, 'x') + "\nnext\n", 1000),
      (Documents{std::string(1000, 'x'), std::string(1000, 'x'), std::string(500, 'x'), "next"}));
}

TEST(Corpus, AsSaysWhatFilesOfAnyNameHold) {
  const std::string directory = fresh_directory();
  const std::string path = write_text(directory + "/a.log", "{\"text\":\"x\"}\n");
  EXPECT_EQ(documents_of({.patterns = {path}, .as = TextKind::kPlainText}),
            Documents{"{\"text\":\"x\"}"});
  EXPECT_EQ(documents_of({.patterns = {path}, .as = TextKind::kJsonLines}), Documents{"x"});
  expect_error([&] { documents_of({.patterns = {path}}); }, {path, "unknown kind", "--as"});
  expect_error([&] { documents_of({.patterns = {path}, .as = TextKind::kParquet}); },
               {path, "is not a Parquet file"});
  expect_error(
      [&] {
        CorpusReader(
            {.patterns = {path}, .as = TextKind::kJsonLines, .document = DocumentUnit::kParagraph});
      },
      {"--document paragraph", "no input is plain text"});
  expect_error(
      [&] { documents_of({.patterns = {path}, .text_field = "body", .as = TextKind::kPlainText}); },
      {"--text-field body", "all inputs are plain text"});
}

// Makes a file standard input during its lifetime.
class StandardInput {
 public:
  explicit StandardInput(const std::string& path) : earlier_(::dup(STDIN_FILENO)) {
    const int file = ::open(path.c_str(), O_RDONLY);
    ::dup2(file, STDIN_FILENO);
    ::close(file);
  }
  ~StandardInput() {
    ::dup2(earlier_, STDIN_FILENO);
    ::close(earlier_);
  }
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;

 private:
  int earlier_;
};

TEST(Corpus, AParquetFileIsOneUnderTheNameOfPlainText) {
  const std::string path = fresh_directory() + "/a.txt";
  std::filesystem::copy(MPT_SOURCE_DIR "/tests/golden/parquet/snappy_v1.parquet", path);
  EXPECT_FALSE(CorpusReader({.patterns = {path}}).has_plain_text());
  expect_error([&] { CorpusReader({.patterns = {path}, .document = DocumentUnit::kLine}); },
               {"--document line", "no input is plain text"});
}

TEST(Corpus, StandardInputIsReadAlone) {
  const std::string directory = fresh_directory();
  const std::string path = write_text(directory + "/a", test::zstd("one\n\ntwo \xff\n"));
  const StandardInput input(path);
  expect_error([&] { documents_of({.patterns = {"-"}, .as = TextKind::kPlainText}); },
               {"standard input:3: not valid UTF-8"});
  const auto refuse = [](const CorpusOptions& options, const std::string& part) {
    expect_error([&] { CorpusReader{options}; }, {part});
  };
  refuse({.patterns = {"-"}}, "--as text or --as jsonl");
  refuse({.patterns = {"-"}, .as = TextKind::kParquet}, "Parquet file cannot be read from it");
  refuse({.patterns = {path, "-"}, .as = TextKind::kPlainText}, "must be the only input; found 2");
}

TEST(Corpus, APositionIsGoneBackTo) {
  const std::string directory = fresh_directory();
  write_text(directory + "/a.txt", "a1\n\na2 \xff\n\na3\n");
  write_text(directory + "/b.jsonl",
             "{\"text\":\"b1\"}\n\n{\"text\":\"\"}\nbad\n{\"text\":\"b2\"}\n");
  write_text(directory + "/c.txt", "c1 and more than sixteen bytes\n");
  const CorpusOptions options{.patterns = {directory + "/*"},
                              .on_bad_document = OnBadDocument::kSkip,
                              .max_document_bytes = 16};
  std::vector<CorpusPosition> positions;
  CorpusReader whole(options);
  Documents all;
  positions.push_back(whole.position());
  for (std::string text; whole.next(text);) {
    all.push_back(text);
    positions.push_back(whole.position());
  }
  ASSERT_EQ(all.size(), 7u);
  EXPECT_EQ(whole.stats().bad, 2);
  for (size_t i = 1; i < positions.size(); ++i) {
    SCOPED_TRACE(i);
    CorpusReader rest(options);
    rest.skip_to(positions[i]);
    EXPECT_TRUE(rest.position() == positions[i]);
    EXPECT_EQ(documents_of(rest), Documents(all.begin() + static_cast<ptrdiff_t>(i), all.end()));
    EXPECT_TRUE(rest.stats() == whole.stats());
    EXPECT_EQ(rest.input_bytes_read(), rest.input_bytes());
  }
  write_text(directory + "/b.jsonl", "{\"text\":\"other\"}\n");
  CorpusReader other(options);
  expect_error([&] { other.skip_to(positions[4]); }, {"/b.jsonl: its first 2 documents"});
}

TEST(Corpus, ReadsPatternsInOrderAndFilesSorted) {
  const std::string directory = fresh_directory();
  for (const char* name : {"b2.txt", "b1.txt", "a.txt", "c.jsonl"})
    write_text(directory + "/" + name, name[0] == 'c' ? "{\"text\":\"c.jsonl\"}" : name);
  const CorpusOptions options{.patterns = {directory + "/b*.txt", directory + "/[ac].*"}};
  EXPECT_EQ(documents_of(options), (Documents{"b1.txt", "b2.txt", "a.txt", "c.jsonl"}));
  CorpusReader corpus(options);
  documents_of(corpus);
  EXPECT_EQ(corpus.input_bytes_read(), corpus.input_bytes());
  EXPECT_EQ(corpus.input_bytes(), 6 + 6 + 5 + 18);
}

TEST(Corpus, LiteralNamesWithPatternCharacters) {
  const std::string path = write_text(fresh_directory() + "/a[1]*.txt", "literal");
  EXPECT_EQ(documents_of({.patterns = {path}}), Documents{"literal"});
}

TEST(Corpus, BadNamesAreErrors) {
  const std::string directory = fresh_directory();
  const std::string path = write_text(directory + "/a.txt", "x");
  write_text(directory + "/a.pdf", "x");
  expect_error([&] { CorpusReader({.patterns = {directory + "/none*.txt"}}); },
               {"none*.txt", "no file matches"});
  expect_error([&] { CorpusReader({.patterns = {directory + "/none.txt"}}); },
               {"none.txt", "no such file"});
  expect_error([&] { CorpusReader({.patterns = {directory}}); }, {directory, "is a directory"});
  expect_error([&] { CorpusReader({.patterns = {}}); }, {"no input files"});
  expect_error([&] { CorpusReader({.patterns = {""}}); }, {"empty"});
  expect_error(
      [&] {
        CorpusReader({.patterns = {path, directory + "/*.txt"}});
      },
      {"a.txt", "named twice"});
  expect_error([&] { CorpusReader({.patterns = {directory + "/a.*"}}); }, {"a.pdf", ".jsonl"});
  expect_error([&] { CorpusReader({.patterns = {path}, .max_document_bytes = 3}); },
               {"max_document_bytes is 3"});
  expect_error([&] { CorpusReader({.patterns = {"/dev/null"}}); },
               {"/dev/null", "not a regular file"});
}

TEST(Utf8, AcceptsAndRefusesByTheTable) {
  for (const std::string_view good :
       {"", "a", "\x7f", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "0123456789abcdef\xC3\xA9 more"})
    EXPECT_EQ(valid_utf8_prefix(good), good.size());
  for (const std::string_view bad : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2\x41",
                                     "\xE0\x9F\xBF", "\xE0\xA0", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                                     "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFE", "\xFF"}) {
    EXPECT_EQ(valid_utf8_prefix(bad), 0u);
    EXPECT_EQ(valid_utf8_prefix("0123456789" + std::string(bad)), 10u);
  }
}

TEST(Utf8, CutsBetweenOneAndTheLimit) {
  EXPECT_EQ(cut_position("abc", 5), 3u);
  EXPECT_EQ(cut_position("aaa bbb ccc", 9), 8u);
  EXPECT_EQ(cut_position("a bbbbbbbbbbbb", 9), 9u);  // white space only in the first half
  EXPECT_EQ(cut_position("ééééé", 5), 4u);
  EXPECT_EQ(cut_position("\x80\x80\x80\x80\x80\x80\x80\x80", 5), 5u);
  EXPECT_EQ(cut_position("😀😀", 2), 2u);
  EXPECT_EQ(cut_position("ab", 1), 1u);
}

}  // namespace
}  // namespace mpt

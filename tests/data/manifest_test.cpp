// The manifest and the document index: round trips, every missing or wrong field, damaged shards.
#include "data/manifest.h"

#include "data/data_files.h"
#include "data/document_index.h"

namespace mpt {
namespace {

using nlohmann::json;
using test::expect_error;
using test::fresh_directory;

Manifest sample_manifest(const std::string& directory) {
  const TokenShard first(
      test::write_shard(directory + "/train_000000.bin", test::counting_tokens(100)));
  const TokenShard second(
      test::write_shard(directory + "/train_000001.bin", test::counting_tokens(50, 100)));
  ManifestSplit split{
      .documents = 7, .tokens = 150, .text_bytes = 600, .unigram_entropy_nats = 3.25};
  split.shards = {{"train_000000.bin", 100, first.content_hash()},
                  {"train_000001.bin", 50, second.content_hash()}};
  return {.tokenizer = {"tokenizer.model", "abc", 60000, 1, 2},
          .splits = {{"train", split}},
          .options = {{"seed", 3}}};
}

TEST(Manifest, RoundTrips) {
  const std::string directory = fresh_directory(), path = directory + "/manifest.json";
  sample_manifest(directory).save(path);
  const Manifest loaded = Manifest::load(path);
  EXPECT_EQ(loaded.tokenizer.file, "tokenizer.model");
  EXPECT_EQ(loaded.tokenizer.hash, "abc");
  EXPECT_EQ(loaded.tokenizer.vocab_size, 60000);
  EXPECT_EQ(loaded.tokenizer.bos_id, 1);
  EXPECT_EQ(loaded.tokenizer.eos_id, 2);
  const ManifestSplit& split = loaded.splits.at("train");
  EXPECT_EQ(split.documents, 7);
  EXPECT_EQ(split.tokens, 150);
  EXPECT_EQ(split.text_bytes, 600);
  EXPECT_EQ(split.unigram_entropy_nats, 3.25);
  ASSERT_EQ(split.shards.size(), 2u);
  EXPECT_EQ(loaded.find_shard("train_000001.bin")->tokens, 50);
  EXPECT_EQ(loaded.find_shard("val_000000.bin"), nullptr);
  EXPECT_EQ(loaded.options.at("seed"), 3);
  EXPECT_NO_THROW(loaded.verify_contents(directory));
  EXPECT_TRUE(manifest_beside(directory + "/train_000000.bin").has_value());
  EXPECT_FALSE(manifest_beside(fresh_directory() + "/train_000000.bin").has_value());
}

TEST(Manifest, EveryMissingOrMistypedFieldIsNamed) {
  const std::string directory = fresh_directory(), path = directory + "/manifest.json";
  sample_manifest(directory).save(path);
  const json good = json::parse(test::read_text(path));
  for (const char* pointer :
       {"/format", "/format_version", "/tokenizer", "/tokenizer/file", "/tokenizer/hash",
        "/tokenizer/vocab_size", "/tokenizer/bos_id", "/tokenizer/eos_id", "/splits",
        "/splits/train/documents", "/splits/train/tokens", "/splits/train/text_bytes",
        "/splits/train/unigram_entropy_nats", "/splits/train/shards", "/splits/train/shards/1/file",
        "/splits/train/shards/1/tokens", "/splits/train/shards/1/hash", "/options"}) {
    SCOPED_TRACE(pointer);
    const json::json_pointer at(pointer);
    json broken = good;
    broken[at.parent_pointer()].erase(at.back());
    test::write_text(path, broken.dump());
    expect_error([&] { Manifest::load(path); }, {path, at.back(), "missing"});
    broken = good;
    broken[at] = true;
    test::write_text(path, broken.dump());
    expect_error([&] { Manifest::load(path); }, {path, at.back()});
  }
}

TEST(Manifest, WrongValuesAreErrors) {
  const std::string directory = fresh_directory(), path = directory + "/manifest.json";
  sample_manifest(directory).save(path);
  const json good = json::parse(test::read_text(path));
  const std::vector<std::pair<json, std::string>> patches{
      {{{"format", "other"}}, "format is 'other'"},
      {{{"format_version", 2}}, "format_version is 2"},
      {{{"tokenizer", {{"vocab_size", 0}}}}, "at least 1"},
      {{{"splits", {{"train", {{"tokens", 151}}}}}}, "add up to 150"},
      {{{"tokenizer", {{"file", "../up.model"}}}}, "../up.model"},
  };
  for (const auto& [patch, message] : patches) {
    json broken = good;
    broken.merge_patch(patch);
    test::write_text(path, broken.dump());
    expect_error([&] { Manifest::load(path); }, {path, message});
  }
  json long_name = good;
  long_name["splits"][std::string(10'000, 'n')] = {{"shards", json::array()}};
  test::write_text(path, long_name.dump());
  expect_error([&] { Manifest::load(path); }, {path, "10000 bytes; at most 100"});
  test::write_text(path, good.dump().substr(0, 50));
  expect_error([&] { Manifest::load(path); }, {path, "not valid JSON"});
  test::write_text(path, "[]");
  expect_error([&] { Manifest::load(path); }, {path, "not a JSON object"});
  expect_error([&] { Manifest::load(directory); }, {directory, "directory"});
  expect_error([&] { Manifest::load(path + "x"); }, {"no such file"});
}

TEST(Manifest, VerifyFindsChangedContents) {
  const std::string directory = fresh_directory();
  const Manifest manifest = sample_manifest(directory);
  const std::string path = directory + "/train_000001.bin", good = test::read_text(path);
  std::string changed = good;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  test::write_text(path, changed);
  expect_error([&] { manifest.verify_contents(directory); }, {path, "content hash"});
  test::write_shard(path, test::counting_tokens(49));
  expect_error([&] { manifest.verify_contents(directory); }, {path, "49 tokens", "lists 50"});
  std::filesystem::remove(path);
  expect_error([&] { manifest.verify_contents(directory); }, {path, "no such file"});
}

TEST(Manifest, OptionsThatAreNotUtf8AreWritten) {
  const std::string directory = fresh_directory(), path = directory + "/manifest.json";
  Manifest manifest = sample_manifest(directory);
  manifest.options["patterns"] = {"caf\xe9.txt"};
  EXPECT_NO_THROW(manifest.save(path));
  EXPECT_NO_THROW(Manifest::load(path));
}

TEST(DocumentIndex, RoundTripsAlsoWithoutDocuments) {
  const std::string path = fresh_directory() + "/a.idx";
  for (const std::vector<uint64_t>& starts :
       {std::vector<uint64_t>{}, std::vector<uint64_t>{0}, std::vector<uint64_t>{3, 4, 99}}) {
    write_document_index(path, starts, 100);
    const DocumentIndex index(path, 100);
    ASSERT_EQ(index.documents(), std::ssize(starts));
    for (size_t i = 0; i < starts.size(); ++i)
      EXPECT_EQ(index.start(int64_t(i)), int64_t(starts[i]));
  }
  EXPECT_EQ(index_path_of("x/train_000000.bin"), "x/train_000000.idx");
  EXPECT_EQ(index_path_of("x/odd.name"), "x/odd.name.idx");
}

TEST(DocumentIndex, DamageIsAnError) {
  const std::string path = fresh_directory() + "/a.idx";
  const std::vector<uint64_t> starts{0, 10, 20};
  write_document_index(path, starts, 100);
  const std::string good = test::read_text(path);
  expect_error([&] { DocumentIndex(path, 101); }, {path, "100 tokens", "101"});
  for (const size_t size :
       {size_t{0}, size_t{7}, size_t{23}, size_t{24}, size_t{47}, good.size() - 8}) {
    test::write_text(path, good.substr(0, size));
    expect_error([&] { DocumentIndex(path, 100); }, {path});
  }
  test::write_text(path, "X" + good.substr(1));
  expect_error([&] { DocumentIndex(path, 100); }, {path, "MPTDOCS1"});
  test::write_text(path, good + "12345678");
  expect_error([&] { DocumentIndex(path, 100); }, {path, "lists 3 documents", "hold 4"});
  for (const std::vector<uint64_t>& wrong :
       {std::vector<uint64_t>{5, 5}, std::vector<uint64_t>{5, 4}, std::vector<uint64_t>{100},
        std::vector<uint64_t>{~uint64_t{0}}}) {
    write_document_index(path, wrong, 100);
    expect_error([&] { DocumentIndex(path, 100); }, {path, "document"});
  }
}

}  // namespace
}  // namespace mpt

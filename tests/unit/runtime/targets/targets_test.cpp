#include "runtime/targets/targets.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/golden.h"

namespace attn::targets {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// A file of this process, removed at the end of the test.
class JsonFile {
 public:
  explicit JsonFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("attn-target-{}.json", getpid())) {
    std::ofstream(path_) << text;
  }
  ~JsonFile() { std::filesystem::remove(path_); }
  JsonFile(const JsonFile&) = delete;
  JsonFile& operator=(const JsonFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

Json h200() { return Json::parse(find_target("h200")->device_json); }

TEST(Targets, KnowWhoseNumbersAreRead) {
  EXPECT_FALSE(is_from_data_sheet(*find_target("h200")));
  plan::Target target = *find_target("a100");
  EXPECT_TRUE(is_from_data_sheet(target));
  target.device_json += ' ';
  EXPECT_FALSE(is_from_data_sheet(target)) << "those are somebody else's";
}

TEST(Targets, CapabilitiesAreNames) {
  for (const char* name : {"9.0", "sm_90", "SM_90"}) EXPECT_EQ(find_target(name)->name, "h200");
  EXPECT_EQ(find_target("12.0")->name, "rtx5090");
  for (const char* name : {"9.1", "9.", ".0", "9.00", "9"}) EXPECT_FALSE(find_target(name).ok());
}

TEST(Targets, GpusOfACapability) {
  EXPECT_THAT(gpus_of(90), ElementsAre("H200", "H100", "H800", "H20", "GH200"));
  EXPECT_THAT(gpus_of(89), ElementsAre("L40S", "L4", "RTX4090", "L40"));
  EXPECT_THAT(gpus_of(70), ElementsAre());
}

TEST(Targets, EachNameHasItsArchitectureAndProvenance) {
  for (const std::string& name : target_names()) {
    const auto target = find_target(name);
    ASSERT_TRUE(target.ok()) << target.error().to_text();
    EXPECT_EQ(target->name, name);
    EXPECT_THAT(target->device_json, HasSubstr(fmt::format("\"deviceVer\": {}0,", target->sm)));
    EXPECT_FALSE(provenance(name).empty());
  }
  EXPECT_EQ(find_target("h200")->sm, 90);
  EXPECT_EQ(find_target("rtx5090")->sm, 120);
  EXPECT_THAT(std::string(provenance("h200")), HasSubstr("read from an NVIDIA"));
  EXPECT_THAT(std::string(provenance("b200")), HasSubstr("data sheet"));
  EXPECT_THAT(std::string(provenance("h100")), HasSubstr("read from an NVIDIA"));
  EXPECT_TRUE(provenance("v100").empty());
}

TEST(Targets, BuiltInDataIsTheFile) {
  std::ifstream file(ATTN_SOURCE_DIR "/runtime/targets/a100.json");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(find_target("a100")->device_json, text);
}

TEST(Targets, UnknownNameListsTheKnownOnes) {
  const auto target = find_target("v100");
  ASSERT_FALSE(target.ok());
  EXPECT_EQ(target.error().code, ErrorCode::invalid_argument);
  std::vector<std::string_view> others;
  for (const Alias& alias : aliases()) others.push_back(alias.name);
  EXPECT_EQ(
      target.error().message,
      fmt::format("unknown target \"v100\"; targets are {}, aliases are {}, or give a .json file",
                  fmt::join(target_names(), ", "), fmt::join(others, ", ")));
}

TEST(Targets, AnUnknownNameHasAHintByItsGpu) {
  for (const char* name : {"H100-SXM", "NVIDIA H100 80GB HBM3", "h100_pcie", "H100SXM5"}) {
    EXPECT_EQ(hint_for(name), "did you mean `h100`?") << name;
  }
  EXPECT_EQ(hint_for("a100-sxm4-40gb"), "did you mean `a100`?");
  EXPECT_EQ(hint_for("NVIDIA GeForce RTX 4090 Laptop"), "did you mean `rtx4090`?");
  for (const char* name : {"rtx4060", "NVIDIA RTX 4000 Ada", "RTX 4070 Ti Super"}) {
    EXPECT_EQ(hint_for(name), "its compute capability is 8.9, like that of `l40s`") << name;
  }
  EXPECT_EQ(hint_for("rtx5080"), "its compute capability is 12.0, like that of `rtx5090`");
  for (const char* name : {"orin", "sm_87", "sm87", "8.7", "compute_87", "Orin"}) {
    EXPECT_EQ(hint_for(name).find("its compute capability is 8.7, and no target has this one"), 0)
        << name;
  }
  for (const char* name : {"v100", "Tesla V100-SXM2-32GB", "sm_70"}) {
    EXPECT_EQ(hint_for(name), "its compute capability is 7.0; attnc compiles for 8.0 and higher")
        << name;
  }
  EXPECT_EQ(hint_for("sm90"), "its compute capability is 9.0, like that of `h200`");
  for (const char* name : {"cuda", "gpu", "CUDA:0", "local"}) {
    EXPECT_EQ(hint_for(name), "`native` is the GPU of this machine") << name;
  }
  for (const char* name : {"", "h2000", "mi300x", "none", "1"})
    EXPECT_EQ(hint_for(name), "") << name;
  EXPECT_EQ(find_target("rtx4080").error().notes, std::vector{hint_for("rtx4080")});
}

TEST(Targets, NamesAreReadInAnyCase) {
  for (const char* name : {"H100", "h100"}) EXPECT_EQ(find_target(name)->name, "h100") << name;
  EXPECT_EQ(find_target("RTX5090")->name, "rtx5090");
  EXPECT_EQ(find_target("SM_90")->name, "h200");
}

TEST(Targets, AliasesAreInTheManual) {
  std::string table = "| alias | target | differences |\n|---|---|---|\n";
  for (const Alias& alias : aliases()) {
    table += fmt::format("| `{}` | `{}` | {} |\n", alias.name, alias.target, alias.differs);
  }
  attn::testing::expect_table("docs/cli.md", "aliases", table);
}

TEST(Targets, AliasesAreTargetsOfTheSameCapability) {
  for (const Alias& alias : aliases()) {
    const auto target = find_target(std::string(alias.name));
    ASSERT_TRUE(target.ok()) << alias.name;
    EXPECT_EQ(target->name, alias.target);
    EXPECT_THAT(target_names(), ::testing::Not(::testing::Contains(std::string(alias.name))));
    const bool is_capability = alias.name.starts_with("sm_");
    EXPECT_EQ(alias.differs.empty(), is_capability) << alias.name;
    if (!is_capability) continue;
    EXPECT_EQ(fmt::format("sm_{}", target->sm), alias.name);
  }
}

// A key that a newer cuDNN compares must be present, or it rejects the properties.
TEST(Targets, AllHaveTheSameKeys) {
  const auto keys = [](const std::string& name) {
    const Json device = Json::parse(find_target(name)->device_json);
    std::vector<std::string> found;
    for (const auto& [key, value] : device.items()) found.push_back(key);
    return found;
  };
  for (const std::string& name : target_names()) EXPECT_EQ(keys(name), keys("h200")) << name;
}

TEST(Targets, FileIsNamedByItsStem) {
  Json device = h200();
  device["deviceVer"] = 1030;
  const JsonFile file(device.dump());
  const auto target = find_target(file.path().string());
  ASSERT_TRUE(target.ok()) << target.error().to_text();
  EXPECT_EQ(target->name, file.path().stem().string());
  EXPECT_EQ(target->sm, 103);
  EXPECT_EQ(target->device_json, device.dump());
}

TEST(Targets, FileThatLacksAPropertyNamesIt) {
  for (const char* key : {"maxGridSize", "deviceVer", "deviceName"}) {
    Json device = h200();
    device.erase(key);
    const JsonFile file(device.dump());
    const auto target = find_target(file.path().string());
    ASSERT_FALSE(target.ok());
    EXPECT_EQ(target.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(target.error().message, HasSubstr(file.path().string()));
    EXPECT_THAT(target.error().message, HasSubstr(fmt::format("\"{}\"", key)));
  }
}

// What is read of them, of the kind that is read: this ended the process.
TEST(Targets, APropertyOfAnotherKindIsRefused) {
  for (const char* key :
       {"deviceVer", "multiProcessorCount", "smClockRateKHz", "memClockRateKHz"}) {
    for (const Json& value : {Json("900"), Json(1.5), Json(nullptr), Json::array()}) {
      Json device = h200();
      device[key] = value;
      const auto target = make_target("x", device.dump());
      ASSERT_FALSE(target.ok()) << key << value;
      EXPECT_EQ(target.error().code, ErrorCode::invalid_argument);
      EXPECT_EQ(target.error().message,
                fmt::format("the device property \"{}\" is not an integer", key));
    }
  }
  Json device = h200();
  device["deviceName"] = 200;
  EXPECT_EQ(make_target("x", device.dump()).error().message,
            "the device property \"deviceName\" is not a text");
}

TEST(Targets, KeysOfNewerCudnnAreNotRequired) {
  Json device = h200();
  for (const char* key : {"smCountOrigin", "oversizedSharedMemoryPerBlock", "memoryBusWidth"}) {
    ASSERT_EQ(device.erase(key), 1U) << "the built-in data serves newer cuDNN too";
  }
  EXPECT_TRUE(make_target("old", device.dump()).ok());
}

TEST(Targets, FilesThatAreNone) {
  for (const char* text : {"", "{", "[]", "3"}) {
    const JsonFile file(text);
    const auto target = find_target(file.path().string());
    ASSERT_FALSE(target.ok()) << text;
    EXPECT_EQ(target.error().code, ErrorCode::invalid_argument);
  }
  const auto missing = find_target("/no/such/file.json");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::io);
  Json device = h200();
  device["deviceVer"] = "900";
  EXPECT_EQ(make_target("x", device.dump()).error().code, ErrorCode::invalid_argument);
}

TEST(Targets, NestedDeep) {
  const std::string h200(find_target("h200")->device_json);
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const auto target =
      make_target("x", "{\"deep\": " + deep + "," + h200.substr(h200.find('{') + 1));
  ASSERT_FALSE(target.ok());
  EXPECT_THAT(target.error().message, HasSubstr("nested too deeply"));
}

}  // namespace
}  // namespace attn::targets

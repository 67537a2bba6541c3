#include "runtime/cache/file_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/runtime/cache/cache_testing.h"

namespace attn::cache {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::key;
using testing::numbered_plan;

class FileStoreTest : public testing::FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    store_.emplace(folder());
  }

  void save(const plan::Plan& plan) const {
    const Status saved = store_->save(plan);
    ASSERT_TRUE(saved.ok()) << saved.error().to_text();
  }
  bool has(const plan::Plan& plan) const {
    return fs::exists(store_->path_of(plan.signature.hash));
  }
  // Makes the last use that much older.
  void age(const plan::Plan& plan, std::chrono::seconds by) const {
    fs::last_write_time(store_->path_of(plan.signature.hash),
                        fs::file_time_type::clock::now() - by);
  }
  std::uint64_t file_bytes(const plan::Plan& plan) const {
    return fs::file_size(store_->path_of(plan.signature.hash));
  }

  std::optional<FileStore> store_;
};

TEST_F(FileStoreTest, GivesBackWhatWasSaved) {
  const plan::Plan plan = numbered_plan(1);
  EXPECT_FALSE(store_->load(key(plan))->has_value());  // no folder yet
  save(plan);
  EXPECT_EQ(**store_->load(key(plan)), plan);
  EXPECT_FALSE(store_->load(key(numbered_plan(2)))->has_value());
  EXPECT_EQ(file_count(), 1U);
  EXPECT_EQ(fs::status(folder()).permissions(), fs::perms::owner_all);
}

TEST_F(FileStoreTest, AnotherSignatureOfTheSameHashIsNoPlanOfThis) {
  const plan::Plan plan = numbered_plan(1);
  save(plan);
  const Key other(plan::Signature{"another text", plan.signature.hash});
  EXPECT_EQ(*FileStore::read(store_->list()->front()), plan);
  ASSERT_TRUE(store_->load(other).ok());
  EXPECT_FALSE(store_->load(other)->has_value());
  EXPECT_TRUE(has(plan));
}

TEST_F(FileStoreTest, EveryDamageIsAnError) {
  const plan::Plan plan = numbered_plan(1);
  save(plan);
  const std::string path = store_->path_of(plan.signature.hash);
  const std::string good = plan::serialize(plan);
  const auto load_of = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return store_->load(key(plan));
  };
  ASSERT_TRUE(load_of(good)->has_value());
  for (std::size_t i = 0; i < good.size(); i += good.size() / 200 + 1) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    EXPECT_FALSE(load_of(bad).ok()) << i;
    EXPECT_FALSE(load_of(good.substr(0, i)).ok()) << i;
  }
}

TEST_F(FileStoreTest, ListsWhatWasUsedLastFirst) {
  for (int i = 0; i < 3; ++i) {
    save(numbered_plan(i));
    age(numbered_plan(i), 100s * (i + 1));
  }
  ASSERT_TRUE(store_->load(key(numbered_plan(2)))->has_value());  // counts as a use
  const std::vector<StoredFile> files = *store_->list();
  ASSERT_EQ(files.size(), 3U);
  EXPECT_EQ(files[0].hash, numbered_plan(2).signature.hash);
  EXPECT_EQ(files[1].hash, numbered_plan(0).signature.hash);
  EXPECT_EQ(files[2].hash, numbered_plan(1).signature.hash);
  EXPECT_EQ(files[1].bytes, file_bytes(numbered_plan(0)));
  EXPECT_NEAR(
      std::chrono::duration<double>(std::chrono::system_clock::now() - files[1].used).count(), 100,
      60);
}

TEST_F(FileStoreTest, PrunesTheLeastRecentlyUsedDownToTheLimit) {
  for (int i = 0; i < 4; ++i) {
    save(numbered_plan(i));
    age(numbered_plan(i), 100s * (i + 1));
  }
  const std::uint64_t two = file_bytes(numbered_plan(0)) + file_bytes(numbered_plan(1));
  const Result<Pruned> pruned = store_->prune({two, 1h});
  EXPECT_EQ(pruned->files, 2U);
  EXPECT_TRUE(has(numbered_plan(0)) && has(numbered_plan(1)));
  EXPECT_FALSE(has(numbered_plan(2)) || has(numbered_plan(3)));
}

TEST_F(FileStoreTest, PrunesWhatIsOld) {
  for (int i = 0; i < 2; ++i) save(numbered_plan(i));
  age(numbered_plan(0), 2h);
  EXPECT_EQ(store_->prune({1 << 30, 1h})->files, 1U);
  EXPECT_FALSE(has(numbered_plan(0)));
  EXPECT_TRUE(has(numbered_plan(1)));
}

TEST_F(FileStoreTest, SavingKeepsTheLimit) {
  save(numbered_plan(0));
  store_.emplace(folder(), FileLimits{2 * file_bytes(numbered_plan(0)) + 10, 1h});
  for (int i = 1; i < 6; ++i) {
    age(numbered_plan(i - 1), 10s * (6 - i));
    save(numbered_plan(i));
    EXPECT_TRUE(has(numbered_plan(i)));
  }
  EXPECT_TRUE(has(numbered_plan(4)));
  EXPECT_EQ(file_count(), 2U);
}

TEST_F(FileStoreTest, LeavesFilesOfOthersAlone) {
  save(numbered_plan(0));
  const std::string ours = store_->path_of(numbered_plan(0).signature.hash);
  const std::vector<std::string> others = {"notes.txt",
                                           "causal.attnplan",
                                           std::string(32, 'A') + ".attnplan",
                                           std::string(31, 'a') + ".attnplan",
                                           std::string(32, 'a') + ".attnplan.bak",
                                           std::string(32, 'a')};
  for (const std::string& name : others) std::ofstream(folder() + "/" + name) << "mine";
  fs::create_directories(folder() + "/" + std::string(32, 'b') + ".attnplan");
  std::ofstream(ours + ".1.0.tmp") << "half";
  std::ofstream(ours + ".1.1.tmp") << "half";
  fs::last_write_time(ours + ".1.1.tmp", fs::file_time_type::clock::now() - 2h);
  EXPECT_EQ(store_->list()->size(), 1U);
  EXPECT_EQ(store_->prune({0, 0s})->temporaries, 1U);
  EXPECT_FALSE(fs::exists(ours));
  const Pruned cleared = *store_->clear();
  EXPECT_EQ(cleared.files, 0U);
  EXPECT_EQ(cleared.temporaries, 1U);
  EXPECT_EQ(file_count(), others.size() + 1);
}

// Plans are code: whoever may write to the folder or a file controls what is executed.
TEST_F(FileStoreTest, WhatOthersMayWriteToIsNotUsed) {
  const plan::Plan plan = numbered_plan(1);
  save(plan);
  const std::string file = store_->path_of(plan.signature.hash);
  EXPECT_EQ(fs::status(file).permissions() & (fs::perms::group_write | fs::perms::others_write),
            fs::perms::none);
  for (const fs::perms write : {fs::perms::group_write, fs::perms::others_write}) {
    for (const std::string& path : {folder(), file}) {
      fs::permissions(path, write, fs::perm_options::add);
      const auto loaded = store_->load(key(plan));
      ASSERT_FALSE(loaded.ok()) << path;
      EXPECT_EQ(loaded.error().code, ErrorCode::io);
      EXPECT_THAT(loaded.error().message, HasSubstr("other users may write to it"));
      EXPECT_EQ(store_->save(numbered_plan(2)).ok(), path == file);
      EXPECT_FALSE(FileStore::read(store_->list()->front()).ok() && path == folder());
      fs::permissions(path, write, fs::perm_options::remove);
    }
  }
  EXPECT_TRUE(store_->load(key(plan))->has_value());
}

TEST_F(FileStoreTest, WhatBelongsToAnotherUserIsNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "SKIPPED: only root can give files away";
  const plan::Plan plan = numbered_plan(1);
  save(plan);
  for (const std::string& path : {store_->path_of(plan.signature.hash), folder()}) {
    ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
    const auto loaded = store_->load(key(plan));
    ASSERT_FALSE(loaded.ok()) << path;
    EXPECT_THAT(loaded.error().message, HasSubstr("it is owned by another user, 65534"));
    EXPECT_THAT(loaded.error().notes, ::testing::Contains(HasSubstr("plans are code")));
    ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
  }
  EXPECT_TRUE(store_->load(key(plan))->has_value());
}

TEST_F(FileStoreTest, ALinkInPlaceOfAFileIsNotFollowed) {
  const plan::Plan plan = numbered_plan(1);
  save(plan);
  const std::string file = store_->path_of(plan.signature.hash);
  fs::rename(file, root() / "elsewhere");
  fs::create_symlink(root() / "elsewhere", file);
  EXPECT_FALSE(store_->load(key(plan)).ok());
}

TEST_F(FileStoreTest, AFolderThatCannotBeIsAnIoError) {
  std::ofstream(root() / "file") << "no folder";
  const FileStore store((root() / "file" / "cache").string());
  const Status saved = store.save(numbered_plan(1));
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().code, ErrorCode::io);
  EXPECT_FALSE(store.list().ok());
  EXPECT_FALSE(store.load(key(numbered_plan(1)))->has_value());
}

}  // namespace
}  // namespace attn::cache

#include "fabric/emulator/bird.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace c4::fabric {
namespace {

using ::testing::HasSubstr;

TEST(BirdTest, LeafAndSpineDescribeTheSameSession) {
  const FabricSpec spec;
  const std::string leaf = LeafBirdText(spec, 1, "/tmp"), spine = SpineBirdText(spec, 0, "/tmp");
  EXPECT_THAT(leaf, HasSubstr("local 172.17.0.0 as 65101;\n  neighbor 172.17.0.1 as 65000;"));
  EXPECT_THAT(spine, HasSubstr("local 172.17.0.1 as 65000;\n  neighbor 172.17.0.0 as 65101;"));
  // Its own hosts never come back to a leaf over another one.
  EXPECT_THAT(leaf, HasSubstr("import where net !~ [10.1.0.0/16+]"));
  EXPECT_THAT(leaf, HasSubstr("log \"/tmp/c4-leaf1.log\""));
}

}  // namespace
}  // namespace c4::fabric

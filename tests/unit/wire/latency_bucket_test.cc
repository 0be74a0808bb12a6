// The buckets in which latencies are counted: both ends of the wire have to mean the same by them.
#include <cmath>
#include <gtest/gtest.h>
#include <random>

#include "wire/segment.h"

namespace c4::wire {
namespace {

// Of a latency per KiB.
int Bucket(uint64_t ns_per_kib) {
  return LatencyBucket(ns_per_kib * 1024, 1024 * 1024);
}

TEST(LatencyBucket, HalfOctavesFromSixteenNanosecondsPerKiB) {
  EXPECT_EQ(Bucket(0), 0);
  EXPECT_EQ(Bucket(15), 0);
  EXPECT_EQ(Bucket(16), 0);
  EXPECT_EQ(Bucket(22), 0);
  EXPECT_EQ(Bucket(23), 1);
  EXPECT_EQ(Bucket(31), 1);
  EXPECT_EQ(Bucket(32), 2);
  for (int octave = 4; octave < 20; ++octave) {
    const uint64_t start = uint64_t{1} << octave;
    const int bucket = 2 * (octave - 4);
    EXPECT_EQ(Bucket(start), bucket) << start;
    EXPECT_EQ(Bucket(start * 23 / 16), bucket + 1) << start;
    EXPECT_EQ(Bucket(start * 2 - 1), bucket + 1) << start;
  }
  EXPECT_EQ(Bucket(uint64_t{1} << 20), kLatencyBuckets - 1);
}

// Within a bucket everything lies between 2^(4 + i/2) and 2^(4 + (i+1)/2), but for the rounding of sqrt(2).
TEST(LatencyBucket, BoundsAreAsTheFormatSays) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t per_kib = 16 + (random() >> (random() % 20 + 44));
    const int bucket = Bucket(per_kib);
    if (bucket == kLatencyBuckets - 1) continue;
    const double low = std::exp2(4 + bucket / 2.0);
    ASSERT_GE(static_cast<double>(per_kib), low * 0.98) << per_kib;
    ASSERT_LE(static_cast<double>(per_kib), low * std::sqrt(2.0) * 1.02) << per_kib;
  }
}

TEST(LatencyBucket, NeverFallsWithLatencyAndNeverRisesWithSize) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t bytes = random() >> (random() % 30 + 34);
    const uint64_t latency = random() >> (random() % 64);
    const int bucket = LatencyBucket(latency, bytes);
    ASSERT_GE(bucket, 0);
    ASSERT_LT(bucket, kLatencyBuckets);
    ASSERT_LE(bucket, LatencyBucket(latency + (latency >> (random() % 8)) / 2, bytes))
        << latency << " " << bytes;
    ASSERT_GE(bucket, LatencyBucket(latency, 2 * bytes)) << latency << " " << bytes;
  }
}

TEST(LatencyBucket, SmallChunksCountAsTheFloor) {
  for (const uint64_t latency : {1000u, 100000u, 10000000u}) {
    const int floor = LatencyBucket(latency, kLatencyFloorBytes);
    for (const uint64_t bytes : {0u, 1u, 1024u, 16383u}) EXPECT_EQ(LatencyBucket(latency, bytes), floor);
    EXPECT_LT(LatencyBucket(latency, 4 * kLatencyFloorBytes), floor);
  }
}

TEST(LatencyBucket, ExtremesLandInTheOuterBuckets) {
  EXPECT_EQ(LatencyBucket(0, 0), 0);
  EXPECT_EQ(LatencyBucket(0, UINT64_MAX), 0);
  EXPECT_EQ(LatencyBucket(UINT64_MAX, 0), kLatencyBuckets - 1);
  // The product of latency and 1024 passes the end of 64 bits from here on.
  for (const int shift : {52, 53, 54, 55, 60, 63}) {
    EXPECT_EQ(LatencyBucket(uint64_t{1} << shift, 131072), kLatencyBuckets - 1) << shift;
  }
}

}  // namespace
}  // namespace c4::wire

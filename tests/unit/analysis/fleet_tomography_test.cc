// Fleet tomography on small simulated clusters, and by hand.
#include "analysis/fleet_tomography.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <random>

#include "tests/support/fleet_sim.h"

namespace c4::analysis {
namespace {

using test::Fleet;
using test::FleetSpec;
using test::SimulateFleet;
using testing::ElementsAre;
using testing::IsEmpty;

FleetSpec Small(uint64_t seed, uint32_t grey_links) {
  FleetSpec spec;
  spec.nics = 2048;
  spec.spines = 16;
  spec.most_job_nodes = 16;
  spec.grey_links = grey_links;
  spec.least_worse = 0.2;
  spec.seed = seed;
  return spec;
}

std::vector<uint32_t> LinksOf(const FleetFindings& findings) {
  std::vector<uint32_t> links;
  for (const GreyLink& grey : findings.links) {
    if (grey.instead.empty()) links.push_back(grey.link);
  }
  std::sort(links.begin(), links.end());
  return links;
}

TEST(FleetTomographyTest, GreyLinksAreNamedAndNoOthers) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Fleet fleet = SimulateFleet(Small(seed, 3));
    const FleetFindings findings = FindGreyLinks(fleet.samples, 2048, fleet.links);
    std::vector<uint32_t> grey;
    for (const auto& one : fleet.grey) grey.push_back(one.link);
    std::sort(grey.begin(), grey.end());
    EXPECT_EQ(LinksOf(findings), grey) << "seed " << seed;
    for (const GreyLink& found : findings.links) {
      for (const auto& one : fleet.grey) {
        if (one.link == found.link) {
          EXPECT_NEAR(found.worse, one.worse, 0.08) << "seed " << seed;
        }
      }
    }
  }
}

TEST(FleetTomographyTest, WithoutAGreyLinkNoneIsNamed) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Fleet fleet = SimulateFleet(Small(seed, 0));
    const FleetFindings findings = FindGreyLinks(fleet.samples, 2048, fleet.links);
    EXPECT_THAT(findings.links, IsEmpty()) << "seed " << seed;
    EXPECT_GT(findings.judged_links, fleet.links / 2);
  }
}

// Hosts that are slow, jobs that are slow: all that a NIC sends or receives.
TEST(FleetTomographyTest, SlowHostsAreNoLinks) {
  FleetSpec spec = Small(3, 0);
  spec.slow_nics = 0.1;
  spec.nic_bias = 0.2;
  const Fleet fleet = SimulateFleet(spec);
  EXPECT_THAT(FindGreyLinks(fleet.samples, 2048, fleet.links).links, IsEmpty());
}

// What a link's samples of one job say is too little; those of all jobs name it.
TEST(FleetTomographyTest, WhatNoSingleJobCouldNameAllTogetherName) {
  FleetSpec spec = Small(5, 1);
  spec.most_worse = spec.least_worse = 0.25;
  spec.most_job_nodes = 4;
  const Fleet fleet = SimulateFleet(spec);
  EXPECT_THAT(LinksOf(FindGreyLinks(fleet.samples, 2048, fleet.links)), ElementsAre(fleet.grey[0].link));
  const uint32_t jobs = *std::max_element(fleet.job_of_nic.begin(), fleet.job_of_nic.end());
  for (uint32_t job = 1; job <= jobs; ++job) {
    std::vector<FleetSample> own;
    for (const FleetSample& sample : fleet.samples) {
      if (fleet.job_of_nic[sample.source] == job) own.push_back(sample);
    }
    EXPECT_THAT(FindGreyLinks(own, 2048, fleet.links).links, IsEmpty()) << "job " << job;
  }
}

// All that comes up a link goes down another: nobody can tell which of the two it is.
TEST(FleetTomographyTest, LinksThatTheSameSamplesTakeAreNotToldApart) {
  std::mt19937 random(1);
  std::normal_distribution<float> noise(0, 0.01F);
  std::vector<FleetSample> samples;
  for (uint32_t source = 0; source < 8; ++source) {
    for (uint32_t way = 0; way < 8; ++way) {
      samples.push_back({.source = source,
                         .destination = 8 + source,
                         .links = {way, 8 + way},
                         .link_count = 2,
                         .log_time = noise(random) + (way == 3 ? 0.3F : 0)});
    }
  }
  const FleetFindings findings = FindGreyLinks(samples, 16, 16);
  ASSERT_EQ(findings.links.size(), 1U);
  EXPECT_EQ(findings.links[0].link, 3U);
  EXPECT_THAT(findings.links[0].instead, ElementsAre(11));
  EXPECT_NEAR(findings.links[0].worse, std::expm1(0.3), 0.03);
}

// One host's trouble on one way is no link's.
TEST(FleetTomographyTest, WhatOneHostAloneSeesIsNotJudged) {
  std::mt19937 random(1);
  std::normal_distribution<float> noise(0, 0.01F);
  std::vector<FleetSample> samples;
  for (uint32_t source = 0; source < 8; ++source) {
    for (uint32_t i = 0; i < 64; ++i) {
      const uint32_t way = i % 8;
      samples.push_back({.source = source,
                         .destination = 8 + (source + i) % 8,
                         .links = {source * 8 + way},
                         .link_count = 1,
                         .log_time = noise(random) + (source == 2 && way == 3 ? 0.3F : 0)});
    }
  }
  EXPECT_THAT(FindGreyLinks(samples, 16, 64).links, IsEmpty());
  EXPECT_THAT(FindGreyLinks(samples, 16, 64, {.least_sources = 1}).links, testing::SizeIs(1));
}

TEST(FleetTomographyTest, NothingAndTooLittleAreNoFault) {
  EXPECT_THAT(FindGreyLinks({}, 0, 0).links, IsEmpty());
  EXPECT_THAT(FindGreyLinks({}, 4, 4).links, IsEmpty());
  const FleetSample one{.source = 0, .destination = 1, .links = {2}, .link_count = 1, .log_time = 5};
  EXPECT_THAT(FindGreyLinks({one, one, one}, 4, 4).links, IsEmpty());
  // The order is no matter.
  Fleet fleet = SimulateFleet(Small(7, 2));
  const FleetFindings before = FindGreyLinks(fleet.samples, 2048, fleet.links);
  std::shuffle(fleet.samples.begin(), fleet.samples.end(), std::mt19937(1));
  EXPECT_EQ(LinksOf(FindGreyLinks(fleet.samples, 2048, fleet.links)), LinksOf(before));
  EXPECT_EQ(before.links.size(), 2U);
}

}  // namespace
}  // namespace c4::analysis

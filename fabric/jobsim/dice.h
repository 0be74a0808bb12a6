// Chance that depends on nothing but its key. What a kernel of one rank takes is the same whatever happens
// to others, so a job with a fault can be compared with the very same job without it.
//
// Pure functions; any thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

namespace c4::jobsim {

// splitmix64's finaliser.
constexpr uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

constexpr uint64_t Mix(std::initializer_list<uint64_t> key) {
  uint64_t value = 0;
  for (const uint64_t part : key) value = Mix(value ^ part);
  return value;
}

// From 0 to below 1.
constexpr double Uniform(uint64_t chance) {
  return static_cast<double>(chance >> 11) * 0x1p-53;
}

constexpr double Between(uint64_t chance, double least, double most) {
  return least + (most - least) * Uniform(chance);
}

// The same chance for each factor.
inline double LogBetween(uint64_t chance, double least, double most) {
  return least * std::pow(most / least, Uniform(chance));
}

// Mean 0, standard deviation 1: four uniform parts of the chance, which is near enough and quick.
constexpr double Normal(uint64_t chance) {
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<double>((chance >> (16 * i)) & 0xffff) / 65536.0;
  return (sum - 2) * 1.7320508075688772;
}

}  // namespace c4::jobsim

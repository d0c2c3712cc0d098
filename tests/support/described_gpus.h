// GPU descriptions in cuDNN's format, from published figures.
#pragma once

#include <array>
#include <ostream>
#include <string>

#include <fmt/format.h>

#include "device/cuda/sdpa_graph.h"

namespace mpt::test {

struct PublishedGpu {
  const char* name;
  int capability;
  int multiprocessors;
  int clock_mhz, memory_clock_mhz;
  int64_t memory_bytes, l2_bytes;
  int shared_bytes;  // maximum per block
};

inline void PrintTo(const PublishedGpu& gpu, std::ostream* out) { *out << gpu.name; }

// From NVIDIA's data sheets and the tables of the CUDA programming guide.
inline constexpr std::array kPublishedGpus{PublishedGpu{.name = "NVIDIA A100-SXM4-80GB",
                                                        .capability = 80,
                                                        .multiprocessors = 108,
                                                        .clock_mhz = 1410,
                                                        .memory_clock_mhz = 1593,
                                                        .memory_bytes = int64_t{80} << 30,
                                                        .l2_bytes = int64_t{40} << 20,
                                                        .shared_bytes = 163 << 10},
                                           PublishedGpu{.name = "NVIDIA H200",
                                                        .capability = 90,
                                                        .multiprocessors = 132,
                                                        .clock_mhz = 1980,
                                                        .memory_clock_mhz = 3201,
                                                        .memory_bytes = int64_t{141'000'000'000},
                                                        .l2_bytes = int64_t{50} << 20,
                                                        .shared_bytes = 227 << 10},
                                           PublishedGpu{.name = "NVIDIA B200",
                                                        .capability = 100,
                                                        .multiprocessors = 148,
                                                        .clock_mhz = 1965,
                                                        .memory_clock_mhz = 3996,
                                                        .memory_bytes = int64_t{180'000'000'000},
                                                        .l2_bytes = int64_t{126} << 20,
                                                        .shared_bytes = 227 << 10}};

// Fields not listed are the same for all of them.
inline DescribedGpu described(const PublishedGpu& gpu) {
  return {
      .capability = gpu.capability,
      .multiprocessors = gpu.multiprocessors,
      .properties = fmt::format(
          R"({{"deviceVer": {}, "driverVer": 13000, "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, "multiProcessorCount": {},
    "smClockRateKHz": {}, "memClockRateKHz": {}, "l2CacheSize": {}, "warpSize": 32,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": {},
    "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "pciDeviceId": 0,
    "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "deviceName": "{}",
    "isTccDriver": 0, "supportCoopLaunch": 1, "totalGlobalMem": {}, "cudaDeviceId": 0}})",
          10 * gpu.capability, gpu.multiprocessors, 1000 * gpu.clock_mhz,
          1000 * gpu.memory_clock_mhz, gpu.l2_bytes, gpu.shared_bytes, gpu.name, gpu.memory_bytes)};
}

}  // namespace mpt::test

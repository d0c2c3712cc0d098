// make_ops<Ops>(stream, options): creates a family of operations for a stream's backend.
//
// A family is an interface with
//   static constexpr std::string_view kFamily = "LLaMA operations";   for messages
//   struct Options { ... };                                           its makers' arguments besides
//                                                                     the stream
// Its header also declares the CPU maker, defined in *_ops_cpu.cpp:
//   template <> std::unique_ptr<LlamaOps> make_cpu_ops(const LlamaOps::Options& options);
// The CUDA maker registers itself if its object file, *_ops_cuda.cu, is linked:
//   const RegisterCudaOps<LlamaOps> registered{make};
#pragma once

#include <memory>
#include <string_view>

#include "core/check.h"
#include "device/device.h"

namespace mpt {

template <class Ops>
using OpsMaker = std::unique_ptr<Ops> (*)(StreamRef, const typename Ops::Options&);

template <class Ops>
std::unique_ptr<Ops> make_cpu_ops(const typename Ops::Options& options);

// Null in a build without CUDA.
template <class Ops>
OpsMaker<Ops>& cuda_ops_maker() {
  static OpsMaker<Ops> maker = nullptr;
  return maker;
}

template <class Ops>
struct RegisterCudaOps {
  explicit RegisterCudaOps(OpsMaker<Ops> maker) { cuda_ops_maker<Ops>() = maker; }
};

// Throws LogicError if the build has none for the stream's backend.
template <class Ops>
std::unique_ptr<Ops> make_ops(StreamRef stream, const typename Ops::Options& options = {}) {
  if (stream.backend == Backend::kCpu) return make_cpu_ops<Ops>(options);
  const OpsMaker<Ops> maker = cuda_ops_maker<Ops>();
  check(maker != nullptr, "no {} for {}", Ops::kFamily, name_of(stream.backend));
  return maker(stream, options);
}

}  // namespace mpt

// make_ops<Ops>(stream, options): the one way from a family of operations to the backend that a stream
// belongs to.
//
// A family is an interface with
//   static constexpr std::string_view kFamily = "LLaMA operations";   for messages
//   struct Options { ... };                                            what its makers take besides the
//   stream
// Beside it, its header declares the CPU's maker, which its *_ops_cpu.cpp defines:
//   template <> std::unique_ptr<LlamaOps> make_cpu_ops(const LlamaOps::Options& options);
// CUDA's registers itself where its object is linked, in *_ops_cuda.cu:
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

// Null in a program without CUDA.
template <class Ops>
OpsMaker<Ops>& cuda_ops_maker() {
  static OpsMaker<Ops> maker = nullptr;
  return maker;
}

template <class Ops>
struct RegisterCudaOps {
  explicit RegisterCudaOps(OpsMaker<Ops> maker) { cuda_ops_maker<Ops>() = maker; }
};

// Throws LogicError where the program has none for the stream's backend.
template <class Ops>
std::unique_ptr<Ops> make_ops(StreamRef stream, const typename Ops::Options& options = {}) {
  if (stream.backend == Backend::kCpu) return make_cpu_ops<Ops>(options);
  const OpsMaker<Ops> maker = cuda_ops_maker<Ops>();
  check(maker != nullptr, "no {} for {}", Ops::kFamily, name_of(stream.backend));
  return maker(stream, options);
}

}  // namespace mpt

// Functions that GCC and Clang call before every load and store of code compiled with
// -fsanitize=thread. Only kernels are, and nothing is linked against the thread sanitizer: these
// replace its library.
//
// Called from anywhere in those files, by any host thread; only accesses of kernels count.
#include <cstdint>

#include "support/fake_cuda/race_detector.h"

// NOLINTBEGIN: names of the compiler's
using fake_cuda::detail::Access;
using fake_cuda::detail::note_access;

#define ACCESSES(bytes)                                                                  \
  void __tsan_read##bytes(void* at) { note_access(at, bytes, Access::kRead); }           \
  void __tsan_write##bytes(void* at) { note_access(at, bytes, Access::kWrite); }         \
  void __tsan_unaligned_read##bytes(void* at) { note_access(at, bytes, Access::kRead); } \
  void __tsan_unaligned_write##bytes(void* at) { note_access(at, bytes, Access::kWrite); }

// Atomics of the host's library code, such as shared pointers; kernels use CUDA's.
#define ATOMICS(bits)                                                                           \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* at, int) {           \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                               \
  }                                                                                             \
  void __tsan_atomic##bits##_store(volatile uint##bits##_t* at, uint##bits##_t x, int) {        \
    __atomic_store_n(at, x, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                             \
  uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t* at, uint##bits##_t x,  \
                                                int) {                                          \
    return __atomic_exchange_n(at, x, __ATOMIC_SEQ_CST);                                        \
  }                                                                                             \
  uint##bits##_t __tsan_atomic##bits##_fetch_add(volatile uint##bits##_t* at, uint##bits##_t x, \
                                                 int) {                                         \
    return __atomic_fetch_add(at, x, __ATOMIC_SEQ_CST);                                         \
  }                                                                                             \
  uint##bits##_t __tsan_atomic##bits##_fetch_sub(volatile uint##bits##_t* at, uint##bits##_t x, \
                                                 int) {                                         \
    return __atomic_fetch_sub(at, x, __ATOMIC_SEQ_CST);                                         \
  }                                                                                             \
  int __tsan_atomic##bits##_compare_exchange_strong(                                            \
      volatile uint##bits##_t* at, uint##bits##_t* expected, uint##bits##_t x, int, int) {      \
    return __atomic_compare_exchange_n(at, expected, x, false, __ATOMIC_SEQ_CST,                \
                                       __ATOMIC_SEQ_CST);                                       \
  }                                                                                             \
  int __tsan_atomic##bits##_compare_exchange_weak(                                              \
      volatile uint##bits##_t* at, uint##bits##_t* expected, uint##bits##_t x, int, int) {      \
    return __tsan_atomic##bits##_compare_exchange_strong(at, expected, x, 0, 0);                \
  }

extern "C" {

ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(void* at, size_t bytes) { note_access(at, bytes, Access::kRead); }
void __tsan_write_range(void* at, size_t bytes) { note_access(at, bytes, Access::kWrite); }

ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

}  // extern "C"
// NOLINTEND

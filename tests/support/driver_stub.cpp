// A CUDA driver without a GPU that can load code: built as libcuda.so.1, the name under which cuDNN
// looks for it.
//
// cuDNN builds a plan for a GPU that is described to it (device/cuda/sdpa_graph.h), compiles the
// plan's kernel and hands that to the driver; it asks for nothing else. Every other call fails, as
// without a GPU. A test links this library, so that dlopen() returns it.

namespace {

constexpr int kSuccess = 0;
constexpr int kStubLibrary = 34;  // CUDA_ERROR_STUB_LIBRARY
constexpr int kVersion = 13000;   // at least that of the toolkit with which cuDNN was built

int handed_out(void** handle) {
  static char object;
  *handle = &object;
  return kSuccess;
}
int set(int* value, int to) {
  *value = to;
  return kSuccess;
}

}  // namespace

// Shows a test that this library is the driver.
extern "C" int driver_stub_is_loaded() { return 1; }

// --- calls that succeed --------------------------------------------------------------------------

extern "C" {
int cuDriverGetVersion(int* version) { return set(version, kVersion); }

int cuLibraryLoadData(void** library) { return handed_out(library); }
int cuLibraryGetKernel(void** kernel) { return handed_out(kernel); }
int cuLibraryUnload() { return kSuccess; }
int cuModuleLoadData(void** module) { return handed_out(module); }
int cuModuleLoadDataEx(void** module) { return handed_out(module); }
int cuModuleGetFunction(void** function) { return handed_out(function); }
int cuModuleUnload() { return kSuccess; }
int cuKernelGetFunction(void** function) { return handed_out(function); }

int cuFuncGetAttribute(int* value) { return set(value, 0); }
int cuFuncSetAttribute() { return kSuccess; }
int cuKernelGetAttribute(int* value) { return set(value, 0); }
int cuKernelSetAttribute() { return kSuccess; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks) { return set(blocks, 1); }
int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks) { return set(blocks, 1); }
}

// --- calls that are looked up and fail -----------------------------------------------------------

#define MPT_FAILS(name) \
  extern "C" int name() { return kStubLibrary; }

MPT_FAILS(cuInit)
MPT_FAILS(cuGetErrorName)
MPT_FAILS(cuGetErrorString)
MPT_FAILS(cuDeviceGet)
MPT_FAILS(cuDeviceGetAttribute)
MPT_FAILS(cuDeviceGetCount)
MPT_FAILS(cuDevicePrimaryCtxRelease)
MPT_FAILS(cuDevicePrimaryCtxReset)
MPT_FAILS(cuDevicePrimaryCtxRetain)
MPT_FAILS(cuCtxGetCurrent)
MPT_FAILS(cuCtxGetDevice)
MPT_FAILS(cuCtxGetLimit)
MPT_FAILS(cuCtxPopCurrent)
MPT_FAILS(cuCtxPushCurrent)
MPT_FAILS(cuStreamGetCtx)
MPT_FAILS(cuStreamSynchronize)
MPT_FAILS(cuLibraryLoadFromFile)
MPT_FAILS(cuLinkAddData)
MPT_FAILS(cuLinkAddData_v2)
MPT_FAILS(cuLinkAddFile_v2)
MPT_FAILS(cuLinkComplete)
MPT_FAILS(cuLinkCreate)
MPT_FAILS(cuLinkCreate_v2)
MPT_FAILS(cuLinkDestroy)
MPT_FAILS(cuModuleGetGlobal_v2)
MPT_FAILS(cuModuleLoadFatBinary)
MPT_FAILS(cuMemcpyDtoH_v2)
MPT_FAILS(cuOccupancyMaxPotentialClusterSize)
MPT_FAILS(cuTensorMapEncodeTiled)
MPT_FAILS(cuLaunchCooperativeKernel)
MPT_FAILS(cuLaunchKernel)
MPT_FAILS(cuLaunchKernelEx)

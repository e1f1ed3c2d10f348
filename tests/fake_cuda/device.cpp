// Answers what torch asks of a CUDA device, in a build of torch that knows none: how many there are, which one is
// current, which stream work goes to. Nothing can be computed on it; fake tensors have shapes and types only.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace at {
struct CUDAHooks : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
};
REGISTER_CUDA_HOOKS(CUDAHooks);
}  // namespace at

namespace {
const c10::Device kOnly(c10::DeviceType::CUDA, 0);
const c10::Stream kStream(c10::Stream::DEFAULT, kOnly);

struct OneDevice : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device getDevice() const override { return kOnly; }
  c10::Device exchangeDevice(c10::Device) const override { return kOnly; }
  c10::Stream getStream(c10::Device) const noexcept override { return kStream; }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return kStream; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool isStreamCapturing(const c10::Stream&) const override { return false; }
};
c10::impl::DeviceGuardImplRegistrar registered(c10::DeviceType::CUDA, new OneDevice());
}  // namespace

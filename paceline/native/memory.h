// Zeroed, line-aligned memory that asks for huge pages: a weight is read once per round, and small pages halve that
// speed.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace paceline {

// A cache is mapped for the longest text and touched as it fills, so the mapping itself must not be charged.
#ifdef MAP_NORESERVE
constexpr int kNoReserve = MAP_NORESERVE;
#else
constexpr int kNoReserve = 0;
#endif

class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    constexpr size_t huge = size_t{2} << 20;
    mapped_ = bytes >= huge ? ((bytes + huge - 1) & ~(huge - 1)) + huge : bytes;
    void* base = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | kNoReserve, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<uint8_t*>(base);
    data_ = base_;
    if (bytes >= huge) {
      data_ = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(base_) + huge - 1) & ~(uintptr_t{huge} - 1));
#ifdef MADV_HUGEPAGE
      madvise(data_, mapped_ - static_cast<size_t>(data_ - base_), MADV_HUGEPAGE);
#endif
    }
  }
  ~Memory() {
    if (base_) munmap(base_, mapped_);
  }
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    Memory moved(std::move(other));
    swap(moved);
    return *this;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void swap(Memory& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapped_, other.mapped_);
  }
  uint8_t* base_ = nullptr;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
  size_t mapped_ = 0;
};

}  // namespace paceline

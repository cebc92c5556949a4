// A workspace of loops: zeros that begin at a cache line, so that a vector of 16 numbers is one line instead of
// two. Pages that are never written take no memory.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace splinefm {

template <class T> class Buffer {
public:
    Buffer() = default;
    explicit Buffer(std::int64_t n) : memory(std::calloc(static_cast<std::size_t>(n) * sizeof(T) + LINE, 1)) {
        if (!memory) throw std::bad_alloc();
        first = reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(memory) + LINE - 1) / LINE * LINE);
#if defined(__linux__)
        // Fewer, larger pages, as NumPy asks for them: rows all over a large table miss fewer addresses.
        const auto begin = (reinterpret_cast<std::uintptr_t>(memory) + PAGE - 1) / PAGE * PAGE;
        const auto end =
            (reinterpret_cast<std::uintptr_t>(memory) + static_cast<std::size_t>(n) * sizeof(T)) / PAGE * PAGE;
        if (end > begin + LARGE) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
    }
    ~Buffer() { std::free(memory); }
    Buffer(Buffer&& other) noexcept : memory(std::exchange(other.memory, nullptr)), first(other.first) {}
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(memory, other.memory);
        std::swap(first, other.first);
        return *this;
    }

    T* data() const { return first; }

private:
    static constexpr std::uintptr_t LINE = 64, PAGE = 4096, LARGE = 1 << 22;
    void* memory = nullptr;
    T* first = nullptr;
};

}  // namespace splinefm

// Numbers below 1e-38 count as zero while an object of this class lives; the thread's own mode comes back afterwards.
//
// Vectors that decay towards zero pass through such numbers, and arithmetic on them is 2 to 3 times slower. Code
// between must be behind a call that is not inlined: the compiler does not know that arithmetic depends on the mode.
#pragma once

#include <cstdint>

namespace splinefm {

class FlushDenormals {
public:
    FlushDenormals() : before(read()) { write(before | FLUSH); }
    ~FlushDenormals() { write(before); }
    FlushDenormals(const FlushDenormals&) = delete;
    FlushDenormals& operator=(const FlushDenormals&) = delete;

private:
#if defined(__x86_64__)
    using Mode = std::uint32_t;
    static constexpr Mode FLUSH = 0x8040;  // results that are denormal (FTZ), and operands (DAZ)
    static Mode read() { return __builtin_ia32_stmxcsr(); }
    static void write(Mode mode) { __builtin_ia32_ldmxcsr(mode); }
#elif defined(__aarch64__)
    using Mode = std::uint64_t;
    static constexpr Mode FLUSH = 1u << 24;
    static Mode read() {
        Mode mode;
        asm volatile("mrs %0, fpcr" : "=r"(mode));
        return mode;
    }
    static void write(Mode mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
    using Mode = int;
    static constexpr Mode FLUSH = 0;
    static Mode read() { return 0; }
    static void write(Mode) {}
#endif
    Mode before;
};

}  // namespace splinefm

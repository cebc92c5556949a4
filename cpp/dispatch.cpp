#include "dispatch.hpp"

#include <cstdlib>
#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace splinefm {

// ISAS(X) is X(baseline) X(avx2) .., those that CMakeLists.txt compiles kernels for.
#define DECLARE(isa)                                                                                                   \
    namespace isa {                                                                                                    \
    extern const Kernels table;                                                                                        \
    }
ISAS(DECLARE)

namespace {

#if defined(__x86_64__)
// Not __builtin_cpu_supports, which needs a library that not every tool chain links.
struct Cpu {
    bool avx2 = false, avx512 = false;

    Cpu() {
        unsigned a, b, c, d;
        if (!__get_cpuid(1, &a, &b, &c, &d)) return;
        const bool fma = c & bit_FMA, avx = c & bit_AVX, f16c = c & bit_F16C;
        if (!(c & bit_OSXSAVE) || !avx || !fma || !f16c) return;
        // The operating system must save the wide registers, too: bits 1, 2 for AVX, 5 to 7 for AVX-512.
        unsigned low, high;
        asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
        avx2 = (low & 0x06) == 0x06 && (b & bit_AVX2);
        const unsigned all = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
        avx512 = avx2 && (low & 0xe6) == 0xe6 && (b & all) == all;
    }
};

bool runs(const std::string& isa) {
    static const Cpu cpu;
    return isa == "avx512" ? cpu.avx512 : isa == "avx2" ? cpu.avx2 : true;
}
#else
bool runs(const std::string&) { return true; }
#endif

const std::vector<const Kernels*>& tables() {
#define ADDRESS(isa) &isa::table,
    static const std::vector<const Kernels*> all{ISAS(ADDRESS)};
    return all;
}

const Kernels* chosen = nullptr;

}  // namespace

std::vector<std::string> available_isas() {
    std::vector<std::string> names;
    for (const Kernels* table : tables())
        if (runs(table->isa)) names.emplace_back(table->isa);
    return names;
}

const Kernels& choose_kernels() {
    const char* asked = std::getenv("SPLINEFM_ISA");
    const std::string name = asked ? asked : "";
    chosen = nullptr;
    for (const Kernels* table : tables())
        if (runs(table->isa) && (name.empty() || name == table->isa)) chosen = table;
    if (name == "baseline") chosen = tables().front();
    if (!chosen) {
        std::string possible;
        for (const std::string& isa : available_isas()) possible += (possible.empty() ? "" : ", ") + isa;
        throw std::runtime_error("SPLINEFM_ISA must be one of the instruction sets that this machine has (" + possible +
                                 "), got '" + name + "'; leave it out for the fastest");
    }
    return *chosen;
}

bool has_kernels() { return chosen; }

const Kernels& kernels() { return *chosen; }

}  // namespace splinefm

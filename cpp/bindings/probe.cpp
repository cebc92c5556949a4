// Functions for tests of internal parts: short vectors, the team of threads, denormal numbers.
#include <nanobind/stl/vector.h>

#include "bindings/arrays.hpp"
#include "dispatch.hpp"
#include "pool.hpp"

namespace splinefm::bindings {
namespace {

Array<float> probe_vec(In<float> a, In<float> b) {
    const float *x = numbers(a, "a"), *y = numbers(b, "b");
    std::vector<float> out(8 * a.size() + 1);
    if (a.size() != b.size() || a.size() > 1024 || !kernels().probe(static_cast<int>(a.size()), x, y, out.data()))
        throw nb::value_error("a and b must have the same length, 4, 8, 16 or 32");
    return give(std::move(out));
}

// A team whose parts add their numbers to separate sums: i for part i and job.
class ProbeTeam {
public:
    ProbeTeam(int threads, int parts)
        : team(threads), sums(parts < 0 ? throw nb::value_error("parts must not be negative") : parts) {}

    void run(int jobs) {
        const nb::gil_scoped_release released;
        for (int job = 0; job < jobs; ++job)
            team.run(static_cast<int>(sums.size()), [this](int i) noexcept { sums[i] += i; });
    }

    std::vector<std::int64_t> found() const { return sums; }

private:
    Team team;
    std::vector<std::int64_t> sums;
};

float probe_product(float x, float y) {
    Team team(1);
    const std::vector<float> a(4, x), b(4, y);
    std::vector<float> out(33);
    team.run(1, [&](int) noexcept { kernels().probe(4, a.data(), b.data(), out.data()); });
    return out[8];
}

}  // namespace

void bind_probe(nb::module_& module) {
    module.def("probe_vec", &probe_vec, nb::arg("a").noconvert(), nb::arg("b").noconvert(),
               "For tests: a + b, a - b, a b, a / b, b[0] a, sqrt(a), abs(a), max(a, b) and the sum of a.");
    nb::class_<ProbeTeam>(module, "ProbeTeam", "For tests: a team of threads whose parts add up their numbers.")
        .def(nb::init<int, int>(), nb::arg("threads"), nb::arg("parts"))
        .def("run", &ProbeTeam::run, nb::arg("jobs"), "Run this number of jobs.")
        .def("found", &ProbeTeam::found, "The sums, part by part.");
    module.def("probe_product", &probe_product, nb::arg("x"), nb::arg("y"),
               "For tests: a product inside kernels, where denormal numbers are zero.");
}

}  // namespace splinefm::bindings

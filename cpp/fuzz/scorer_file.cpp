// Hostile scorer files: copies of good files with changes, most of them with checksums that are right again, are opened
// and score rows of random values. Anything but a result or an error is a crash that the sanitizers tell about.
//
//     fuzz_scorer_file SECONDS SEED FILE..
//
// With Clang, `fuzz_coverage_file` has libFuzzer choose the changes by the code that they reach.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "c/image.hpp"
#include "splinefm.h"

namespace {

using Bytes = std::vector<char>;
using Random = std::mt19937_64;
using Clock = std::chrono::steady_clock;

std::size_t below(Random& random, std::size_t n) { return n ? random() % n : 0; }

template <class T> T read(const Bytes& bytes, std::size_t at) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

template <class T> void write(Bytes& bytes, std::size_t at, T value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
}

std::uint32_t checksum(const Bytes& bytes, std::size_t at, std::size_t size) {
    return splinefm::c::crc32({reinterpret_cast<const std::byte*>(bytes.data()) + at, size});
}

// Checksums and the size of the file as they are now.
void seal(Bytes& bytes) {
    if (bytes.size() < 32) return;
    write<std::uint64_t>(bytes, 16, bytes.size());
    const std::size_t n = read<std::uint32_t>(bytes, 12);
    if (n > 64 || bytes.size() < 32 + 24 * n) return;
    for (std::size_t at = 32; at < 32 + 24 * n; at += 24) {
        const auto offset = read<std::uint64_t>(bytes, at + 8), size = read<std::uint64_t>(bytes, at + 16);
        if (offset <= bytes.size() && size <= bytes.size() - offset)
            write(bytes, at + 4, checksum(bytes, offset, size));
    }
    write<std::uint32_t>(bytes, 24, 0);
    write(bytes, 24, checksum(bytes, 0, 32 + 24 * n));
}

// A copy with as many bytes as there are, so that reading one more is found.
class Aligned {
public:
    Aligned(const void* bytes, std::size_t size) {
        if (::posix_memalign(&place, 64, std::max<std::size_t>(1, size))) std::abort();
        std::memcpy(place, bytes, size);
    }
    ~Aligned() { std::free(place); }
    Aligned(const Aligned&) = delete;
    Aligned& operator=(const Aligned&) = delete;
    const void* get() const { return place; }

private:
    void* place = nullptr;
};

std::int64_t interesting(Random& random, std::size_t size) {
    constexpr std::int64_t NUMBERS[] = {0,       1,       2,       3,       8,         -1,        -2,
                                        1 << 16, 1 << 20, 1 << 28, 1 << 30, INT32_MAX, INT64_MAX, INT64_MIN};
    switch (random() % 4) {
    case 0: return static_cast<std::int64_t>(random());
    case 1: return static_cast<std::int64_t>(below(random, size));
    default: return NUMBERS[below(random, std::size(NUMBERS))];
    }
}

// Where to change something: [begin, end). The header and the descriptions are small and decide most.
std::pair<std::size_t, std::size_t> choose_place(const Bytes& bytes, Random& random) {
    if (random() % 4 == 0) return {0, bytes.size()};
    const std::size_t n = read<std::uint32_t>(bytes, 12);
    if (random() % 2 && n <= 64 && bytes.size() >= 32 + 24 * n) {  // the description of an index, and its maps
        for (std::size_t at = 32; at < 32 + 24 * n; at += 24) {
            const auto kind = static_cast<splinefm::c::Section>(read<std::uint32_t>(bytes, at));
            const auto offset = read<std::uint64_t>(bytes, at + 8), size = read<std::uint64_t>(bytes, at + 16);
            if (kind != splinefm::c::Section::index || offset > bytes.size()) continue;
            const std::size_t more = random() % 4 ? 0 : 1 << 12;
            return {offset / 8 * 8,
                    std::min<std::size_t>(bytes.size(), offset + std::min<std::size_t>(size, 1 << 20) + more)};
        }
    }
    return {0, std::min<std::size_t>(bytes.size(), 64 + read<std::uint64_t>(bytes, 32 + 16) + 4 * 64)};
}

void mutate(Bytes& bytes, Random& random) {
    const auto [begin, end] = choose_place(bytes, random);
    const auto somewhere = [&, begin = begin, end = end] {
        return std::min(bytes.size() - 1, begin + below(random, end > begin ? end - begin : 1));
    };
    switch (random() % 8) {
    case 0: bytes.resize(below(random, bytes.size())); return;
    case 1: bytes[somewhere()] ^= static_cast<char>(1 << random() % 8); return;
    case 2: bytes[somewhere()] = static_cast<char>(random()); return;
    case 3: {  // a run from somewhere else
        const std::size_t n = 8 * (1 + below(random, 16)), from = below(random, bytes.size()), to = somewhere();
        const std::size_t size = std::min({n, bytes.size() - from, bytes.size() - to});
        std::memmove(bytes.data() + to, bytes.data() + from, size);
        return;
    }
    default: {
        const std::size_t at = somewhere() / 8 * 8;
        if (at + 8 <= bytes.size()) write(bytes, at, interesting(random, bytes.size()));
    }
    }
}

sfm_value random_value(Random& random, std::vector<sfm_value>& elements) {
    static const char* const TEXTS[] = {"a", "b", "US", "1", "2.50", " true", "2024-01-01", "a|b|", "\xff\xfe", ""};
    const char* const text = TEXTS[below(random, std::size(TEXTS))];
    switch (random() % 8) {
    case 0: return sfm_missing();
    case 1: return sfm_number(1e3 * static_cast<double>(static_cast<std::int64_t>(random())) / 9.2e18);
    case 2: return sfm_integer(static_cast<std::int64_t>(random() % 20));
    case 3: return sfm_boolean(static_cast<int>(random() % 2));
    case 4: return sfm_number(std::vector<double>{0.0, -0.0, 1e300, -1e300, 5e-324}[random() % 5]);
    case 5:
        for (sfm_value& element : elements) element = sfm_text(text, std::strlen(text));
        return sfm_list(elements.data(), below(random, elements.size()));
    default: return sfm_text(text, std::strlen(text));
    }
}

// Searches in the index of a file.
void use_index(const sfm_scorer* scorer, const sfm_value* context, Random& random) {
    const std::size_t n = sfm_index_size(scorer);
    std::vector<sfm_value> ids(4, sfm_integer(static_cast<std::int64_t>(random() % 60))), groups(2, sfm_text("g1", 2));
    ids.back() = sfm_text("item 7", 6);
    for (std::size_t i = 0; i < 3 && n; ++i)
        if (sfm_index_id(scorer, below(random, n), &ids[i]) || sfm_index_find(scorer, &ids[i]) < 0) std::abort();
    if (const char* const name = sfm_index_group_name(scorer, 0)) groups[0] = sfm_text(name, std::strlen(name));
    const std::size_t k = random() % 2 ? n + 1 : 3;
    std::vector<sfm_value> found(k);
    std::vector<float> scores(k);
    std::size_t n_found = 0;
    sfm_error error;
    sfm_filter filter{};
    if (random() % 2) filter.allowed = ids.data(), filter.n_allowed = below(random, ids.size() + 1);
    if (random() % 2) filter.excluded = ids.data(), filter.n_excluded = below(random, ids.size());
    if (random() % 2) filter.groups = groups.data(), filter.n_groups = below(random, groups.size() + 1);
    for (const sfm_filter* const only :
         {static_cast<const sfm_filter*>(nullptr), static_cast<const sfm_filter*>(&filter)})
        if (sfm_index_top_k(scorer, nullptr, context, k, only, found.data(), scores.data(), &n_found, &error) == SFM_OK)
            for (std::size_t i = 0; i < n_found; ++i)
                if (sfm_index_find(scorer, &found[i]) < 0 || (i && !(scores[i] <= scores[i - 1]))) std::abort();
}

// Everything that a caller might do.
void use(const sfm_scorer* scorer, Random& random) {
    const std::size_t n = sfm_n_columns(scorer);
    for (std::size_t f = 0; f < sfm_n_fields(scorer); ++f) {
        sfm_field field;
        if (sfm_describe_field(scorer, f, &field) == SFM_OK && std::strlen(field.name) > (1u << 30)) std::abort();
    }
    std::vector<sfm_value> elements(9), row(n);
    std::vector<double> out(3 * sfm_n_outputs(scorer));
    sfm_error error;
    for (int i = 0; i < 8; ++i) {
        // Values of the wrong kind end a call early: exchange them until the row is taken.
        for (sfm_value& value : row) value = random_value(random, elements);
        for (std::size_t tries = 0; tries < 4 * n && sfm_predict(scorer, nullptr, row.data(), 1, out.data(), &error);
             ++tries) {
            const char* const name = std::strstr(error.message, "column '");
            for (std::size_t c = 0; c < n && name; ++c) {
                const std::string quoted = "'" + std::string(sfm_column_name(scorer, c)) + "'";
                if (std::strncmp(name + 7, quoted.c_str(), quoted.size()) == 0) row[c] = random_value(random, elements);
            }
        }
        use_index(scorer, row.data(), random);
        const std::vector<std::int64_t> columns{static_cast<std::int64_t>(below(random, n))};
        const std::vector<sfm_value> items{random_value(random, elements), sfm_missing()};
        sfm_score_items(scorer, nullptr, row.data(), columns.data(), n ? 1 : 0, items.data(), 2, out.data(), &error);
        sfm_items* catalog = nullptr;
        if (n && sfm_items_new(scorer, columns.data(), 1, items.data(), 2, &catalog, &error) == SFM_OK) {
            float scores[2];
            std::int64_t found[2];
            std::size_t n_found;
            sfm_items_score(catalog, nullptr, row.data(), scores, &error);
            sfm_items_top_k(catalog, nullptr, row.data(), 2, found, scores, &n_found, &error);
            sfm_items_free(catalog);
        }
    }
}

}  // namespace

#if defined(SPLINEFM_LIBFUZZER)

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

// Changes of libFuzzer and of ours, and then the checksums that go with them.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
    Random random(seed);
    Bytes bytes(data, data + size);
    if (random() % 3 || bytes.size() < 128) {
        bytes.resize(most);
        bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), size, most));
    } else {
        mutate(bytes, random);
    }
    if (random() % 16) seal(bytes);
    if (bytes.size() > most) bytes.resize(most);
    std::memcpy(data, bytes.data(), bytes.size());
    return bytes.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const Aligned memory(data, size);
    sfm_scorer* scorer = nullptr;
    sfm_error error;
    if (sfm_open_memory(memory.get(), size, &scorer, &error) == SFM_OK) {
        Random random(size);
        use(scorer, random);
        sfm_close(scorer);
    } else if (error.code != SFM_ERROR_FILE) {
        std::abort();
    }
    return 0;
}

#else

int main(int count, char** given) {
    if (count < 4) {
        std::fprintf(stderr, "usage: fuzz_scorer_file SECONDS SEED FILE..\n");
        return 2;
    }
    std::vector<Bytes> files;
    for (int i = 3; i < count; ++i) {
        std::ifstream file(given[i], std::ios::binary);
        files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
        if (files.back().size() < 128) return std::fprintf(stderr, "%s is no scorer file\n", given[i]), 2;
    }
    const auto end = Clock::now() + std::chrono::duration<double>(std::atof(given[1]));
    Random random(std::strtoull(given[2], nullptr, 10));
    std::int64_t tried = 0, opened = 0;
    double slowest = 0.0;
    while (Clock::now() < end) {
        const auto begin = Clock::now();
        Bytes bytes = files[below(random, files.size())];
        for (std::size_t n = 1 + below(random, 3); n && bytes.size() >= 128; --n) mutate(bytes, random);
        if (random() % 16) seal(bytes);
        const Aligned memory(bytes.data(), bytes.size());
        sfm_scorer* scorer = nullptr;
        sfm_error error;
        ++tried;
        if (sfm_open_memory(memory.get(), bytes.size(), &scorer, &error) == SFM_OK) {
            ++opened;
            use(scorer, random);
            sfm_close(scorer);
        } else if (error.code != SFM_ERROR_FILE) {
            return std::fprintf(stderr, "code %d: %s\n", static_cast<int>(error.code), error.message), 1;
        }
        slowest = std::max(slowest, std::chrono::duration<double>(Clock::now() - begin).count());
    }
    std::printf("%lld files, of which %lld opened; the slowest took %.3f s\n", static_cast<long long>(tried),
                static_cast<long long>(opened), slowest);
    return slowest > 10.0;
}

#endif

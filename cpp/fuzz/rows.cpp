// Rows of any values for good scorer files, chosen by libFuzzer: a row has one score, alone, twice, and among others.
//
//     SPLINEFM_FUZZ_MODELS=a.sfs:b.sfs fuzz_coverage_rows CORPUS
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "splinefm.h"

namespace {

// Open until the process ends, and not destroyed before the leak sanitizer has looked at it.
std::vector<sfm_scorer*>& scorers = *new std::vector<sfm_scorer*>;

// Reads bytes of the input; zeros behind its end.
class Input {
public:
    Input(const std::uint8_t* data, std::size_t size) : at(data), end(data + size) {}
    std::uint8_t byte() { return at < end ? *at++ : 0; }
    template <class T> T number() {
        T value{};
        for (std::size_t i = 0; i < sizeof value; ++i) reinterpret_cast<std::uint8_t*>(&value)[i] = byte();
        return value;
    }
    const char* text(std::size_t* size) {
        *size = std::min<std::size_t>(byte() % 64, static_cast<std::size_t>(end - at));
        const char* const begin = reinterpret_cast<const char*>(at);
        at += *size;
        return begin;
    }
    bool empty() const { return at == end; }

private:
    const std::uint8_t *at, *end;
};

sfm_value read_value(Input& input, std::vector<std::vector<sfm_value>>& lists, int depth = 0) {
    static const char* const KNOWN[] = {"u", "v", "w", "a", "b", "1", "2.50", "true", "2024-01-01", "a|b|c", ""};
    std::size_t size = 0;
    switch (input.byte() % 9) {
    case 0: return sfm_missing();
    case 1: return sfm_number(input.number<double>());
    case 2: return sfm_integer(input.number<std::int64_t>());
    case 3: return sfm_boolean(input.byte() % 2);
    case 4: return sfm_number(input.number<std::int16_t>() / 256.0);
    case 5: {
        const char* const text = input.text(&size);
        return sfm_text(text, size);
    }
    case 6: {
        if (depth) return sfm_missing();
        std::vector<sfm_value> list(input.byte() % 8);
        for (sfm_value& value : list) value = read_value(input, lists, 1);
        lists.push_back(std::move(list));
        return sfm_list(lists.back().data(), lists.back().size());
    }
    default: {
        const char* const text = KNOWN[input.byte() % (sizeof KNOWN / sizeof *KNOWN)];
        return sfm_text(text, std::strlen(text));
    }
    }
}

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "%s\n", what);
    std::abort();
}

bool same(const std::vector<double>& a, const std::vector<double>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    const char* const given = std::getenv("SPLINEFM_FUZZ_MODELS");
    require(given && *given, "SPLINEFM_FUZZ_MODELS names no scorer files");
    const std::string names = given;
    for (std::size_t begin = 0; begin < names.size();) {
        const std::size_t end = std::min(names.find(':', begin), names.size());
        sfm_scorer* scorer = nullptr;
        sfm_error error;
        require(sfm_open(names.substr(begin, end - begin).c_str(), &scorer, &error) == SFM_OK, error.message);
        scorers.push_back(scorer);
        begin = end + 1;
    }
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    const sfm_scorer* const scorer = scorers[input.byte() % scorers.size()];
    const std::size_t n = sfm_n_columns(scorer), outputs = sfm_n_outputs(scorer);
    std::vector<std::vector<sfm_value>> lists;
    lists.reserve(3 * n);
    std::vector<sfm_value> rows(3 * n);
    for (sfm_value& value : rows) value = read_value(input, lists);
    // Values of the wrong kind become missing ones, one column after the other, so that most rows are scored.
    sfm_error error;
    std::vector<double> all(3 * outputs);
    for (std::size_t tries = 0; tries < 3 * n && sfm_score(scorer, nullptr, rows.data(), 3, all.data(), &error);
         ++tries) {
        require(error.code == SFM_ERROR_VALUE, error.message);
        const char* const name = std::strstr(error.message, "column '");
        require(name != nullptr, error.message);
        const std::size_t row =
            std::strncmp(error.message, "row ", 4) ? 0 : std::strtoull(error.message + 4, nullptr, 10);
        for (std::size_t c = 0; c < n; ++c) {
            const std::string quoted = "'" + std::string(sfm_column_name(scorer, c)) + "'";
            if (std::strncmp(name + 7, quoted.c_str(), quoted.size()) == 0) rows[row * n + c] = sfm_missing();
        }
    }
    if (sfm_score(scorer, nullptr, rows.data(), 3, all.data(), &error) != SFM_OK) return 0;
    std::vector<double> again(3 * outputs), predictions(3 * outputs);
    for (std::size_t row = 0; row < 3; ++row)
        require(sfm_score(scorer, nullptr, rows.data() + row * n, 1, again.data() + row * outputs, &error) == SFM_OK,
                "a row is refused alone");
    require(same(all, again), "a row has another score alone");
    require(sfm_predict(scorer, nullptr, rows.data(), 3, predictions.data(), &error) == SFM_OK, "no prediction");
    for (const double p : predictions) require(std::isfinite(p), "a prediction is not finite");
    std::vector<std::int64_t> columns;
    std::vector<sfm_value> items;
    for (std::size_t c = 0; c < n; c += 2) columns.push_back(static_cast<std::int64_t>(c));
    for (std::size_t row = 0; row < 3; ++row)
        for (const std::int64_t c : columns) items.push_back(rows[row * n + static_cast<std::size_t>(c)]);
    std::vector<double> first(outputs * 3);
    if (sfm_score_items(scorer, nullptr, rows.data(), columns.data(), columns.size(), items.data(), 3, first.data(),
                        &error) == SFM_OK) {
        first.resize(outputs);
        all.resize(outputs);
        require(same(first, all), "the first row has another score as a context with an item");
    }
    return 0;
}

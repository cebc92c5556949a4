// A scorer file: a flat image of little-endian numbers, mapped into memory and used where it is.
//
//     bytes 0 to 7      magic
//     uint32            version, number of sections
//     uint64            size of the file
//     uint32            CRC-32 of the header with this number zero, and of the section table; a zero
//     section table     per section: uint32 kind, uint32 CRC-32, uint64 offset, uint64 size
//     sections          each at a multiple of 64 bytes, in the order of the table, zeros in between
//
// `splinefm.export.scorer` writes such files. The section `meta` describes the model: see `Cursor`. A file may have an
// index of items as well, described by the section `index`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace splinefm::c {

// What a file or a call is refused for; the code is one of splinefm.h.
class Problem : public std::runtime_error {
public:
    Problem(int code, const std::string& message) : std::runtime_error(message), code(code) {}
    const int code;
};

[[noreturn]] void damaged(const std::string& why);

enum class Section {
    meta,
    tables,
    factors,
    linear,
    between,
    bias,
    // of an index, if there is one
    index,
    index_tables,
    ids,
    offsets,
    groups,
    panels,
    scales,
    weights,
    features,
    end
};

// A file that is mapped into memory.
class Mapping {
public:
    explicit Mapping(const char* path);
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(memory), size}; }

private:
    void* memory = nullptr;
    std::size_t size = 0;
};

// The sections of a file, verified.
class Image {
public:
    explicit Image(std::span<const std::byte> bytes);

    bool has_offset() const { return version == 2; }  // files of version 3 say it themselves
    bool has_limits() const { return version >= 3; }
    std::span<const std::byte> section(Section section) const { return sections[static_cast<std::size_t>(section)]; }
    // The numbers of a section.
    template <class T> std::span<const T> numbers(Section which) const {
        const std::span<const std::byte> bytes = section(which);
        if (bytes.size() % sizeof(T)) damaged("a section is cut short");
        return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
    }

private:
    std::uint32_t version = 1;
    std::array<std::span<const std::byte>, static_cast<std::size_t>(Section::end)> sections;
};

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0);

// Reads a section such as `meta` from the beginning to the end: 64-bit words, texts (their size, the bytes, zeros up to
// a multiple of 8), and arrays (offset in a section such as `tables`, number of elements).
class Cursor {
public:
    explicit Cursor(const Image& image, Section meta = Section::meta, Section tables = Section::tables)
        : rest(image.section(meta)), tables(image.section(tables)), budget(this->tables.size()) {}

    std::int64_t integer();
    // An integer from `least` to `most`.
    std::int64_t integer(std::int64_t least, std::int64_t most);
    bool boolean() { return integer(0, 1); }
    double number();
    std::string text();
    template <class T> std::span<const T> array() {
        const std::span<const std::byte> bytes = block(sizeof(T));
        return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
    }
    // How many of something follow that takes a word at least.
    std::int64_t count() { return integer(0, static_cast<std::int64_t>(rest.size() / 8)); }
    bool at_end() const { return rest.empty(); }

private:
    std::span<const std::byte> take(std::size_t size);
    std::span<const std::byte> block(std::size_t size);

    std::span<const std::byte> rest, tables;
    std::size_t budget;  // bytes of tables that arrays may still have: no two of them share some, or a file that has
                         // the same table a million times would take the memory of a million
};

}  // namespace splinefm::c

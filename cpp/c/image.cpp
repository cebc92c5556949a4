#include "c/image.hpp"

#include <bit>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scorer/spelling.hpp"
#include "splinefm.h"

namespace splinefm::c {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers of files are used where they are");

constexpr unsigned char MAGIC[8] = {0x89, 'S', 'F', 'S', '\r', '\n', 0x1a, '\n'};
constexpr std::uint32_t VERSION = 3;  // version 2 has an offset; 3 has limits of numbers, and may have an offset
constexpr std::size_t HEADER = 32, ENTRY = 24, LINE = 64;
constexpr std::uint32_t MAX_SECTIONS = 64;

template <class T> T read(std::span<const std::byte> bytes, std::size_t at) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

// Eight tables: the CRC of eight bytes at a time.
struct CrcTables {
    std::uint32_t of[8][256];

    constexpr CrcTables() : of() {
        for (std::uint32_t i = 0; i < 256; ++i) {
            std::uint32_t value = i;
            for (int bit = 0; bit < 8; ++bit) value = value & 1 ? value >> 1 ^ 0xEDB88320u : value >> 1;
            of[0][i] = value;
        }
        for (int t = 1; t < 8; ++t)
            for (int i = 0; i < 256; ++i) of[t][i] = of[t - 1][i] >> 8 ^ of[0][of[t - 1][i] & 255];
    }
};
constexpr CrcTables CRC;

[[noreturn]] void fail(const std::string& path, const std::string& why) {
    throw Problem(SFM_ERROR_FILE, "cannot open '" + path + "': " + why);
}

}  // namespace

void damaged(const std::string& why) {
    throw Problem(SFM_ERROR_FILE, "the scorer file is damaged (" + why + "); copy it again, or export it again");
}

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) {
    std::uint32_t value = ~before;
    const std::byte* at = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8) {
        std::uint64_t word;
        std::memcpy(&word, at, sizeof word);
        word ^= value;
        value = CRC.of[7][word & 255] ^ CRC.of[6][word >> 8 & 255] ^ CRC.of[5][word >> 16 & 255] ^
                CRC.of[4][word >> 24 & 255] ^ CRC.of[3][word >> 32 & 255] ^ CRC.of[2][word >> 40 & 255] ^
                CRC.of[1][word >> 48 & 255] ^ CRC.of[0][word >> 56];
    }
    for (; left; --left, ++at) value = value >> 8 ^ CRC.of[0][(value ^ std::to_integer<std::uint32_t>(*at)) & 255];
    return ~value;
}

Mapping::Mapping(const char* path) {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // opening a pipe must not wait for its other end
    if (file < 0) fail(path, std::strerror(errno));
    struct stat about;
    const bool known = ::fstat(file, &about) == 0;
    if (!known || !S_ISREG(about.st_mode) || about.st_size <= 0) {
        ::close(file);
        fail(path, !known || S_ISREG(about.st_mode) ? "it is empty" : "it is not a regular file");
    }
    size = static_cast<std::size_t>(about.st_size);
    memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
    const int reason = errno;
    ::close(file);
    if (memory == MAP_FAILED) fail(path, std::strerror(reason));
}

Mapping::~Mapping() { ::munmap(memory, size); }

Image::Image(std::span<const std::byte> bytes) {
    if (bytes.size() < HEADER || std::memcmp(bytes.data(), MAGIC, sizeof MAGIC) != 0)
        throw Problem(SFM_ERROR_FILE, "it is not a scorer file of splinefm; fitted.export_scorer writes such files");
    version = read<std::uint32_t>(bytes, 8);
    const auto n = read<std::uint32_t>(bytes, 12);
    if (version < 1 || version > VERSION)
        throw Problem(SFM_ERROR_FILE, "it is a scorer file of version " + std::to_string(version) +
                                          ", this library reads versions 1 to " + std::to_string(VERSION) +
                                          "; export the model again, or use a matching library");
    if (read<std::uint64_t>(bytes, 16) != bytes.size()) damaged("it has another size than it says");
    if (n > MAX_SECTIONS || bytes.size() < HEADER + n * ENTRY) damaged("its section table is cut short");
    std::array<std::byte, HEADER> header;
    std::memcpy(header.data(), bytes.data(), HEADER);
    std::memset(header.data() + 24, 0, 4);
    if (crc32(bytes.subspan(HEADER, n * ENTRY), crc32(header)) != read<std::uint32_t>(bytes, 24))
        damaged("its header does not match its checksum");
    std::size_t end = HEADER + n * ENTRY;
    std::array<bool, static_cast<std::size_t>(Section::end)> seen{};
    for (std::uint32_t i = 0; i < n; ++i) {
        const std::size_t at = HEADER + i * ENTRY;
        const auto kind = read<std::uint32_t>(bytes, at), sum = read<std::uint32_t>(bytes, at + 4);
        const auto offset = read<std::uint64_t>(bytes, at + 8), size = read<std::uint64_t>(bytes, at + 16);
        if (kind >= sections.size() || seen[kind]) damaged("a section is unknown, or there twice");
        if (offset < end || offset % LINE || offset > bytes.size() || size > bytes.size() - offset)
            damaged("a section is not inside");
        sections[kind] = bytes.subspan(offset, size);
        if (crc32(sections[kind]) != sum) damaged("section " + std::to_string(kind) + " does not match its checksum");
        seen[kind] = true;
        end = offset + size;
    }
}

std::span<const std::byte> Cursor::take(std::size_t size) {
    if (size > rest.size()) damaged("its description is cut short");
    const std::span<const std::byte> taken = rest.first(size);
    rest = rest.subspan(size);
    return taken;
}

std::int64_t Cursor::integer() { return read<std::int64_t>(take(8), 0); }

std::int64_t Cursor::integer(std::int64_t least, std::int64_t most) {
    const std::int64_t value = integer();
    if (value < least || value > most) damaged("a number of its description is out of range");
    return value;
}

double Cursor::number() { return read<double>(take(8), 0); }

std::string Cursor::text() {
    const auto size = static_cast<std::size_t>(integer(0, static_cast<std::int64_t>(rest.size())));
    if ((size + 7) / 8 * 8 > rest.size()) damaged("its description is cut short");
    const std::span<const std::byte> bytes = take((size + 7) / 8 * 8);
    std::string text(reinterpret_cast<const char*>(bytes.data()), size);
    if (text.find('\0') != std::string::npos) damaged("a name has a zero byte");
    if (!is_utf8(text)) damaged("a name is not UTF-8");
    return text;
}

std::span<const std::byte> Cursor::block(std::size_t size) {
    const auto offset = static_cast<std::uint64_t>(integer()), n = static_cast<std::uint64_t>(integer());
    if (offset % 8 || offset > tables.size() || n > (tables.size() - offset) / size) damaged("a table is not inside");
    if (n * size > budget) damaged("tables overlap");
    budget -= n * size;
    return tables.subspan(offset, n * size);
}

}  // namespace splinefm::c

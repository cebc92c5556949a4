// BLAKE2b with a digest of eight bytes, as a number whose first byte is the lowest: the hash of unseen categories, see
// `hash_bucket` in splinefm.encode.fields.vocabulary.
#pragma once

#include <cstdint>
#include <string_view>

namespace splinefm {

std::uint64_t blake2b_8(std::string_view text);

}  // namespace splinefm

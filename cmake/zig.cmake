# The compiler of the `ziglang` package, for machines without one; the Python that the module is for has it installed.
# CMake wants programs of one word, and Zig's are sub-commands: wrappers. Its trial projects know the variables listed.
if(NOT SPLINEFM_PYTHON)
  set(SPLINEFM_PYTHON "${Python_EXECUTABLE}")
endif()
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES SPLINEFM_PYTHON)
foreach(tool c++ ar ranlib)
  set(wrapper "${CMAKE_BINARY_DIR}/zig/${tool}")
  file(WRITE "${wrapper}" "#!/bin/sh\nexec '${SPLINEFM_PYTHON}' -m ziglang ${tool} \"$@\"\n")
  file(CHMOD "${wrapper}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endforeach()
set(CMAKE_CXX_COMPILER "${CMAKE_BINARY_DIR}/zig/c++")
set(CMAKE_AR "${CMAKE_BINARY_DIR}/zig/ar" CACHE FILEPATH "" FORCE)
set(CMAKE_RANLIB "${CMAKE_BINARY_DIR}/zig/ranlib" CACHE FILEPATH "" FORCE)
# Without a target Zig compiles for the very processor that it runs on, baseline included.
execute_process(COMMAND uname -m OUTPUT_VARIABLE machine OUTPUT_STRIP_TRAILING_WHITESPACE)
set(CMAKE_CXX_COMPILER_TARGET "${machine}-linux-gnu.2.17")
# nanobind's headers use stderr. For the stable ABI, Python's headers do not declare it, and in Zig's C++ library no
# other header than this one does.
set(CMAKE_CXX_FLAGS_INIT "-include cstdio")

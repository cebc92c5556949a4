# The compiler of the `ziglang` package, for machines without one; `python` has it installed.
# CMake wants programs of one word, and Zig's are sub-commands: wrappers.
find_program(SPLINEFM_PYTHON NAMES "$ENV{SPLINEFM_PYTHON}" python python3 REQUIRED)
set(zig_tools "${CMAKE_BINARY_DIR}/zig")
foreach(tool cc c++ ar ranlib)
  file(WRITE "${zig_tools}/${tool}" "#!/bin/sh\nexec '${SPLINEFM_PYTHON}' -m ziglang ${tool} \"$@\"\n")
  file(CHMOD "${zig_tools}/${tool}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endforeach()
set(CMAKE_C_COMPILER "${zig_tools}/cc")
set(CMAKE_CXX_COMPILER "${zig_tools}/c++")
set(CMAKE_AR "${zig_tools}/ar" CACHE FILEPATH "" FORCE)
set(CMAKE_RANLIB "${zig_tools}/ranlib" CACHE FILEPATH "" FORCE)
# Without a target Zig compiles for the very processor that it runs on, baseline included.
execute_process(COMMAND uname -m OUTPUT_VARIABLE machine OUTPUT_STRIP_TRAILING_WHITESPACE)
set(CMAKE_CXX_COMPILER_TARGET "${machine}-linux-gnu.2.17")

# libsplinefm: the C interface of the scorer, without Python. `cmake --install` puts the library, its header and a CMake
# package where others find them: find_package(splinefm), target_link_libraries(... splinefm::splinefm).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# A wheel has them inside of the package, which is then the prefix, and has no links: the library is one file.
if(SKBUILD)
  set(CMAKE_INSTALL_LIBDIR splinefm/lib)
  set(CMAKE_INSTALL_INCLUDEDIR splinefm/include)
else()
  set(VERSIONS VERSION ${PROJECT_VERSION} SOVERSION 1)
endif()

add_library(splinefm_c SHARED cpp/c/image.cpp cpp/c/index.cpp cpp/c/index_calls.cpp cpp/c/items.cpp cpp/c/plan.cpp cpp/c/reader.cpp cpp/c/splinefm.cpp)
target_compile_definitions(splinefm_c PRIVATE SFM_BUILDING)
target_compile_options(splinefm_c PRIVATE $<$<CONFIG:Release>:-O3> -ffp-contract=off -fno-math-errno -fno-trapping-math)
target_link_libraries(splinefm_c PRIVATE ours once ${KERNEL_LIBRARIES})
target_include_directories(
  splinefm_c PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/cpp/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(
  splinefm_c PROPERTIES OUTPUT_NAME splinefm EXPORT_NAME splinefm ${VERSIONS} PUBLIC_HEADER cpp/include/splinefm.h)
add_library(splinefm::splinefm ALIAS splinefm_c)

install(TARGETS splinefm_c EXPORT splinefm COMPONENT library
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} PUBLIC_HEADER DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set(PACKAGE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/splinefm)
install(EXPORT splinefm NAMESPACE splinefm:: FILE splinefm-config.cmake DESTINATION ${PACKAGE_FOLDER} COMPONENT library)
write_basic_package_version_file(splinefm-config-version.cmake VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/splinefm-config-version.cmake DESTINATION ${PACKAGE_FOLDER} COMPONENT library)

# For `make fuzz`: changed scorer files, with sanitizers.
if(SPLINEFM_SANITIZE)
  add_executable(fuzz_scorer_file cpp/fuzz/scorer_file.cpp cpp/c/image.cpp cpp/c/index.cpp cpp/c/index_calls.cpp cpp/c/items.cpp cpp/c/plan.cpp cpp/c/reader.cpp cpp/c/splinefm.cpp)
  target_include_directories(fuzz_scorer_file PRIVATE cpp/include)
  target_link_libraries(fuzz_scorer_file PRIVATE ours once ${KERNEL_LIBRARIES})
endif()

# Coverage-guided: Clang with SPLINEFM_SANITIZE=address,undefined,fuzzer-no-link. tests/campaigns/fuzz.py runs them.
if(SPLINEFM_SANITIZE MATCHES fuzzer)
  add_executable(fuzz_coverage_file cpp/fuzz/scorer_file.cpp cpp/c/image.cpp cpp/c/index.cpp cpp/c/index_calls.cpp cpp/c/items.cpp cpp/c/plan.cpp cpp/c/reader.cpp cpp/c/splinefm.cpp)
  target_compile_definitions(fuzz_coverage_file PRIVATE SPLINEFM_LIBFUZZER)
  add_executable(fuzz_coverage_rows cpp/fuzz/rows.cpp cpp/c/image.cpp cpp/c/index.cpp cpp/c/index_calls.cpp cpp/c/items.cpp cpp/c/plan.cpp cpp/c/reader.cpp cpp/c/splinefm.cpp)
  add_executable(fuzz_coverage_json cpp/fuzz/json_rows.cpp)
  foreach(target fuzz_coverage_file fuzz_coverage_rows fuzz_coverage_json)
    target_include_directories(${target} PRIVATE cpp/include)
    target_link_libraries(${target} PRIVATE ours once ${KERNEL_LIBRARIES})
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  endforeach()
endif()

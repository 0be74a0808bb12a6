# What is handed out. `cmake --install build --prefix DIR` copies the programs and the library there without the
# names and lines that only a debugger wants (component c4), and those into a file NAME.debug of their own beside each
# (component c4-debug), which the program names in its .gnu_debuglink. The build folder keeps both in one file: a
# developer's build costs nothing more, and stacks, profiles and checks of the binaries go on as they are.

# c4_ship(TARGET FOLDER): the target is handed out in FOLDER (bin, lib).
function(c4_ship target folder)
  set(name $<TARGET_FILE_NAME:${target}>)
  set(debug ${CMAKE_BINARY_DIR}/symbols/${name}.debug)
  foreach(component c4 c4-debug)
    install(CODE "
file(MAKE_DIRECTORY \"${CMAKE_BINARY_DIR}/symbols\")
execute_process(COMMAND \"${CMAKE_OBJCOPY}\" --only-keep-debug \"$<TARGET_FILE:${target}>\" \"${debug}\"
                COMMAND_ERROR_IS_FATAL ANY)" COMPONENT ${component})
  endforeach()
  # What lies there goes first: two files of one time would be taken for the same, and objcopy gives them new times.
  set(place "\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${folder}/${name}")
  install(CODE "file(REMOVE \"${place}\")" COMPONENT c4)
  install(CODE "file(REMOVE \"${place}.debug\")" COMPONENT c4-debug)
  install(TARGETS ${target} RUNTIME DESTINATION ${folder} COMPONENT c4
          LIBRARY DESTINATION ${folder} COMPONENT c4 NAMELINK_SKIP)
  install(CODE "
execute_process(COMMAND \"${CMAKE_OBJCOPY}\" --strip-unneeded --remove-section=.gnu_debuglink
                        \"--add-gnu-debuglink=${debug}\" \"${place}\"
                COMMAND_ERROR_IS_FATAL ANY)" COMPONENT c4)
  install(FILES ${debug} DESTINATION ${folder} COMPONENT c4-debug)
endfunction()

# What programs are built with against the library (component c4-dev): the headers in include/c4-nccl, away from
# NVIDIA's own nccl.h; the name that -lnccl looks for; a file each for pkg-config and for CMake's find_package(c4-nccl).
# Both look for the library beside themselves, so that the folder may be moved.
function(c4_ship_development)
  set(include ${PROJECT_SOURCE_DIR}/ccl/include)
  install(FILES ${include}/nccl.h ${include}/nccl_device.h DESTINATION include/c4-nccl COMPONENT c4-dev)
  install(FILES ${include}/c4/marks.h ${include}/c4/mitigation.h ${include}/c4/stream.h DESTINATION include/c4-nccl/c4 COMPONENT c4-dev)
  install(TARGETS nccl LIBRARY DESTINATION lib COMPONENT c4-dev NAMELINK_ONLY)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/c4-nccl.pc.in ${CMAKE_BINARY_DIR}/c4-nccl.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/c4-nccl.pc DESTINATION lib/pkgconfig COMPONENT c4-dev)
  include(CMakePackageConfigHelpers)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/c4-nccl-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/c4-nccl-config.cmake ${CMAKE_BINARY_DIR}/c4-nccl-config-version.cmake
          DESTINATION lib/cmake/c4-nccl COMPONENT c4-dev)
endfunction()

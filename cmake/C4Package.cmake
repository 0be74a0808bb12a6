# What is handed out. `cmake --install build --prefix DIR` copies the programs and the library there without the
# names and lines that only a debugger wants (component c4), and those into a file NAME.debug of their own beside each
# (component c4-debug), which the program names in its .gnu_debuglink. The build folder keeps both in one file: a
# developer's build costs nothing more, and stacks, profiles and checks of the binaries go on as they are.

# c4_ship(TARGET FOLDER): the target is handed out in FOLDER (bin, lib).
function(c4_ship target folder)
  set(name $<TARGET_FILE_NAME:${target}>)
  set(debug ${CMAKE_BINARY_DIR}/symbols/${name}.debug)
  install(CODE "
file(MAKE_DIRECTORY \"${CMAKE_BINARY_DIR}/symbols\")
execute_process(COMMAND \"${CMAKE_OBJCOPY}\" --only-keep-debug \"$<TARGET_FILE:${target}>\" \"${debug}\"
                COMMAND_ERROR_IS_FATAL ANY)" ALL_COMPONENTS)
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

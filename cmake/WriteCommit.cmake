# Run at each build (cmake -P): the commit that is built, into the header OUT, which is left alone when it says so
# already. SOURCE is the source folder. C4_COMMIT of the environment goes before git's word; without either:
# "unknown", as where the sources came without their history.
set(commit "$ENV{C4_COMMIT}")
if(commit STREQUAL "")
  execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE commit ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(failed)
    set(commit "unknown")
  else()
    execute_process(COMMAND git -C ${SOURCE} diff --quiet HEAD -- RESULT_VARIABLE changed)
    if(changed)
      string(APPEND commit " and changes")
    endif()
  endif()
endif()
file(WRITE ${OUT}.new "// Made by cmake/WriteCommit.cmake.\n#define C4_COMMIT \"${commit}\"\n")
file(COPY_FILE ${OUT}.new ${OUT} ONLY_IF_DIFFERENT)

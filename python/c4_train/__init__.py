"""What C4 gives a training program, beside the library that it loads in NCCL's place."""

"""What a task may touch, enforced by the Linux kernel."""

"""The sandbox: limits the process of a handler to what its task may touch, enforced by the Linux kernel.

A permission that the kernel cannot enforce keeps a worker from starting; nothing is only advisory. The
package knows nothing of queues. Begin reading in `permissions.py`, then `confine.py`, which makes a plan, and
`plan.py`, which applies it to a child process; each kernel mechanism has a module.
"""

"""Decides which pending task goes to which machine, and explains why when none will do (Kubernetes'
kube-scheduler).

``schedule`` is the table of contents. A pass goes one way: ``passes`` takes tasks from the ``queue`` by their
class (``task_class``), class by class ``feasibility`` filters the machines, ``scoring`` adds up what they
cost, and ``placing`` or ``failure_domains`` takes the best. What found no room may preempt (``preemption``);
what is left is refused, with reasons (``explain``). ``alloc_sets`` does the same with allocs
as machines.

Two wings are imported by their faces: ``fleet``, the machines as arrays, and ``policies``, what packing
costs.

There is one scheduler, for all that waits: monolithic in the words of the Omega paper, not two-level.
"""

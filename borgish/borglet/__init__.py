"""The agent on each machine (the kubelet of Kubernetes, a Nomad client): runs what its assignment says, and
reports what it runs."""

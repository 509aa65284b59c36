// Package kubeadm tests that kubeadm sets up, upgrades and resets nodes whose kubelet is Seedlet:
// "kubeadm init", "join", "upgrade node" and "reset" of the pinned Kubernetes release.
//
// The cluster has a control plane and a worker, each a machine with its own systemd, containerd,
// files, host name and network (realworld/systemdtest), joined by a bridge. The agent is installed
// by hack/install.sh as kubelet.service with kubeadm's drop-in, and kubeadm starts and stops it
// through systemd. Images come from a registry of the test, which makes them of the programs that
// are built for tests.
//
// Where it deviates from a cluster of machines:
//
//   - The machines share a kernel with cgroup v1. kubeadm cannot read its configuration, so the
//     check SystemVerification is ignored. Files cover the settings that a kubelet changes.
//   - kube-proxy and CoreDNS are skipped, since no images of them can be made: a Service has no
//     address that works. The networks of pods are bridges of their nodes, without routes between.
//   - Certificates are valid for three minutes, so that rotations are seen, and the test approves
//     those for serving, as an administrator must. The API server verifies them.
//   - containerd does not set a lower oom_score_adj than its own, for which it lacks a capability.
//   - There is one control plane, and one release of Kubernetes: "upgrade" changes configurations.
//
// After each step, the processes of the agents and the containers must be those of the step before,
// but for what the step has changed: a crash would be hidden by Restart=always.
//
// The test runs only for `make kubeadm`, which sets SEEDLET_KUBEADM. It fails there if root, a
// package or a program is missing.
//
// Start reading at TestKubeadm.
package kubeadm

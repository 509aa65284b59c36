// Package kubeadm tests that kubeadm sets up, upgrades and resets nodes whose kubelet is Seedlet:
// "kubeadm init", "join", "upgrade node" and "reset" of the pinned Kubernetes release.
//
// The cluster has a control plane and a worker, each a machine with its own systemd, containerd,
// files, host name and network (realworld/systemdtest), joined by a bridge. The agent is installed
// by hack/install.sh as kubelet.service with kubeadm's drop-in, and kubeadm starts and stops it
// through systemd. Images come from a registry of the test, which makes them of the programs that
// are built for tests.
//
// The test runs only for `make kubeadm`, which sets SEEDLET_KUBEADM.
//
// Start reading at TestKubeadm.
package kubeadm

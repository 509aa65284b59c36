package criconfig

import (
	"strconv"
	"strings"
)

// Where the files of a pod are on the node.

// PodDir returns the directory of a pod, with its volumes.
func (n *Node) PodDir(uid string) string { return n.PodsDir + "/" + uid }

// DevicesDir returns the directory below the kubelet's root in which block devices of local volumes
// are mounted, each once for all pods. It is the kubelet's.
func DevicesDir(root string) string { return root + "/plugins/kubernetes.io/local-volume/mounts" }

// BlocksDir returns the directory below the kubelet's root in which local volumes of volumeMode
// Block have a directory each, with the devices of all pods. It is the kubelet's.
func BlocksDir(root string) string {
	return root + "/plugins/kubernetes.io~local-volume/volumeDevices"
}

// PodLogDir returns the directory of the logs of a pod, with one directory for each container.
func (n *Node) PodLogDir(namespace, name, uid string) string {
	return n.LogsDir + "/" + namespace + "_" + name + "_" + uid
}

// LogName returns the name of the log file of a run in the log directory of its container.
func LogName(restarts int32) string { return strconv.Itoa(int(restarts)) + ".log" }

// ParseLogName returns the restart count of the run whose log has a name, or whose rotated log has:
// LogName with a suffix, hidden while it is compressed. It reports false for any other name.
func ParseLogName(name string) (restarts int32, isLog bool) {
	visible, isHidden := strings.CutPrefix(name, ".")
	number, rest, _ := strings.Cut(visible, ".")
	n, err := strconv.ParseInt(number, 10, 32)
	isRotated := strings.HasPrefix(rest, "log.")
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != number ||
		!isRotated && (rest != "log" || isHidden) {
		return 0, false
	}
	return int32(n), true
}

// What the directory of a pod has besides volumes that its containers can write: the file of their
// /etc/hosts, and the directory of their termination messages.
const (
	HostsFile   = "etc-hosts"
	MessagesDir = "containers"
)

// HostsFilePath returns the path of the /etc/hosts of a pod's containers.
func (n *Node) HostsFilePath(uid string) string { return n.PodDir(uid) + "/" + HostsFile }

// MessageDir returns the directory of the termination messages of a container.
func (n *Node) MessageDir(uid, container string) string {
	return n.PodDir(uid) + "/" + MessagesDir + "/" + container
}

// MessageFilePath returns the path of the file to which a run writes its termination message. The
// name follows from the number of the run, so that a repeated request names the same file.
func (n *Node) MessageFilePath(uid, container string, restarts int32) string {
	return n.MessageDir(uid, container) + "/" + strconv.Itoa(int(restarts))
}

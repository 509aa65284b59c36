package world

// The plugins port: the sockets by which plugins, such as CSI drivers, register with the agent
// (package pluginregistration of k8s.io/kubelet). Everything that a plugin answers may be wrong,
// late or without end, so the port bounds it.

// The bounds of the plugins port. A node has a handful of plugins.
const (
	PluginSocketsMax   = 64       // sockets that are observed
	PluginDepthMax     = 8        // directories below the directory of the sockets
	PluginInfoBytesMax = 64 << 10 // of the answer to GetPluginInfo
)

// PluginSocketsObserved reports all sockets below the plugins' registration directory, whenever
// they differ from those that were reported last. It is unsolicited. A port that has started
// reports them as soon as there is one.
type PluginSocketsObserved struct {
	Sockets []PluginSocket `json:"sockets"`           // sorted by path
	Omitted int            `json:"omitted,omitempty"` // that are beyond PluginSocketsMax
}

// PluginSocket is a socket of a plugin.
type PluginSocket struct {
	Path string `json:"path"`
	// File identifies the file: a plugin that was restarted has made another one at the path.
	File string `json:"file"`
}

// GetPluginInfo asks a plugin what it is. It completes with PluginInfo. If nothing is at the path,
// or another file, the error is KindNotFound; if nothing responds, KindUnavailable; if the answer
// is longer than PluginInfoBytesMax, KindExhausted; if it is not understood, KindInternal.
type GetPluginInfo struct {
	Socket PluginSocket `json:"socket"`
}

// PluginInfo is the completion of GetPluginInfo: what the plugin has answered, unchecked.
type PluginInfo struct {
	Type     string   `json:"type"`
	Name     string   `json:"name"`
	Endpoint string   `json:"endpoint,omitempty"` // the socket of its services; empty: the same
	Versions []string `json:"versions,omitempty"` // of the API of its services
}

// The types of plugins (package pluginregistration of k8s.io/kubelet).
const (
	PluginTypeCSI    = "CSIPlugin"
	PluginTypeDevice = "DevicePlugin"
	PluginTypeDRA    = "DRAPlugin"
)

// NotifyPluginRegistration reports to a plugin that it is registered, or why it is not. It
// completes with Done, and has the errors of GetPluginInfo.
type NotifyPluginRegistration struct {
	Socket     PluginSocket `json:"socket"`
	Registered bool         `json:"registered"`
	Error      string       `json:"error,omitempty"`
}

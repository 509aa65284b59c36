// Package budget holds what one pod may cost: every bound on what pods share, in one table.
//
// The API server bounds the size of a pod, and not what it costs the node. What exceeds a bound
// concerns that pod alone: the pod is not started, the container or volume is not created, the
// operation waits or fails, or a text or list is cut, as Bound.When says. Except for operations in
// flight and what is cut, its status and an event name the number and the bound, and a metric
// counts the refusal. Static pods, which tenants do not write, are exempt from the bounds that are
// checked before the first sandbox.
//
// The constants are for the code that enforces the bounds, Table for metrics and for the page
// docs/budgets.md. Start reading at Table.
package budget

import (
	"errors"
	"fmt"
)

// The bounds. With ports, resources, node selectors or variables at their bound a step takes about
// 20 ms (BenchmarkHostile in core); ordinary pods have a small part of these.
const (
	ContainersMax         = 256
	VolumesMax            = 256
	MountsMax             = 256
	MountsOfPodMax        = 2048
	MountPathsMax         = 64 << 10
	SupplementalGroupsMax = 4096
	ImagesMax             = 512
	PortsMax              = 4096
	ResourcesMax          = 1024
	ResourceNamesMax      = 32 << 10
	NodeSelectorMax       = 1024
	ProbesMax             = 100 // in a second
	ProbeCommandMax       = 32 << 10
	ProbeMetricsMax       = 4096
	VolumeMetricsMax      = 4096
	TokensMax             = 64
	TokenRequestsMax      = 4
	DriverTokensMax       = 64
	TrustBundlesMax       = 256
	PodCertificatesMax    = 64
	CertificateChainMax   = 100 << 10
	CertificateRequestMax = 1 << 20
	CertificateCallsMax   = 4
	ReferencesMax         = 256
	ReferenceBytesMax     = 16 << 20
	ReferenceKey          = 64 // what a key of an object counts beside its text
	WatchesSmallMax       = 16
	OwnVariablesMax       = 16_384
	VariablesMax          = 40_000
	VariableBytesMax      = 128 << 10
	EnvironmentMax        = 2 << 20
	ArgumentsMax          = 2 << 20
	SubPathMax            = 4096
	ExpandedMax           = 8 << 20
	ExpandedVariable      = 256 // what a variable counts beside its text: it is sorted and looked up
	EnvFilesMax           = 100
	EnvFileBytesMax       = 2 << 20
	FilesMax              = 16_384
	ContentMax            = 64 << 20
	ContentOfPodMax       = 128 << 20
	NestedMountsMax       = 100
	VolumeNamesMax        = 32 << 10
	VolumeNameMax         = 512
	VolumeHandleMax       = 8 << 10
	CSIVolumesSmallMax    = 8
	OperationsMax         = 256
	StopsInFlightMax      = 32
	ProbesInFlightMax     = 16

	SandboxMetadataMax = 32 << 10
	AllocationMax      = 32 << 10

	ImageReferenceMax         = 1 << 10
	ImageReferencesOfPodMax   = 16 << 10
	PullSecretsMax            = 64
	PullSecretBytesMax        = 128 << 10
	PullRegistriesMax         = 1024
	PullWildcardBytesMax      = 384
	PullCredentialsMax        = 16
	PullCredentialBytesMax    = 32 << 10
	MessageMax                = 12 << 10
	ContainerMessagesOfPodMax = 128 << 10
	ContainerGroupsMax        = 256
	ContainerGroupsOfPodMax   = 4096
	ContainerImagesOfPodMax   = 64 << 10
	ReasonMax                 = 256
)

// The watches of a node, which all pods share. Pods with more than WatchesSmallMax references wait
// if they needed more than WatchesLargeMax watches together with all others: so there is room for
// 128 small pods.
const (
	WatchesMax      = 8192
	WatchesLargeMax = WatchesMax - 128*WatchesSmallMax
)

// The volumes of CSI drivers of a node, which all pods share. Pods with CSIVolumesSmallMax volumes
// get no more once there are CSIVolumesLargeMax on the node. The Node has each name twice, as in
// use and as attached, and the API server takes 1.5 MiB. The names of CSIVolumesMax volumes that
// provisioners choose have about ClaimNamesOfNodeMax bytes; those that authors of pods choose leave
// the others theirs.
const (
	CSIVolumesMax            = 4096
	CSIVolumesLargeMax       = CSIVolumesMax / 4 * 3
	VolumeNamesOfNodeMax     = 128 << 10
	VolumeNamesOfNodeHighMax = VolumeNamesOfNodeMax / 4 * 3
	ClaimNamesOfNodeMax      = 384 << 10
)

// The disks of networks of a node, which all pods share: pods with DisksSmallMax disks get no more
// once there are DisksLargeMax on the node. A disk has the portals of all volumes that name it.
const (
	DisksMax               = 1024
	DisksLargeMax          = DisksMax / 4 * 3
	DisksSmallMax          = 8
	PortalsMax             = 32
	PortalsOfDiskMax       = 128
	InlinePortalsOfDiskMax = PortalsOfDiskMax - PortalsMax
)

// Item is a bound, by its index in Table.
type Item int

// The items.
const (
	Containers Item = iota
	Volumes
	Mounts
	MountsOfPod
	MountPaths
	SupplementalGroups
	Images
	Ports
	Resources
	ResourceNames
	NodeSelector
	Probes
	ProbeCommand
	ProbeMetrics
	VolumeMetrics
	Tokens
	TokenRequests
	DriverTokens
	TrustBundles
	PodCertificates
	CertificateCalls
	CertificateChain
	CertificateRequest
	References
	SmallPodReferences
	ReferenceBytes
	OwnVariables
	Variables
	VariableBytes
	EnvironmentBytes
	ArgumentBytes
	ExpandedBytesOfPod
	SubPathBytes
	EnvFiles
	EnvFileBytes
	Files
	ContentBytes
	ContentBytesOfPod
	NestedMounts
	VolumeNames
	VolumeName
	VolumeHandle
	CSIVolumes
	SmallPodCSIVolumes
	VolumeNamesOfNode
	ClaimNamesOfNode
	Disks
	SmallPodDisks
	Portals
	PortalsOfDisk
	InlinePortalsOfDisk
	Operations
	StopsInFlight
	ProbesInFlight
	SandboxMetadata
	AllocationBytes
	ImageReference
	ImageReferencesOfPod
	PullSecrets
	PullSecretBytes
	PullRegistries
	PullWildcardBytes
	PullCredentials
	PullCredentialBytes
	Message
	ContainerMessagesOfPod
	ContainerGroups
	ContainerGroupsOfPod
	ContainerImagesOfPod
	ReasonBytes
	itemCount
)

// Bound is a row of the table.
type Bound struct {
	Name    string // in metrics
	Max     int
	Counted string // what is counted
	When    string // when the bound is checked, and what follows for a pod over it
	Reason  string // why there is a bound, and why it has this value
}

// The values of Bound.When that several items have in common.
const (
	beforeSandbox = "before the first sandbox: the pod is not started, with a BudgetExceeded event; " +
		"in a pod that runs, ephemeral containers are not created"
	beforeCreate  = "before a container is created: CreateContainerConfigError"
	beforeAttach  = "before such a volume is attached: FailedMount"
	beforeContent = "before the content of a volume is written: FailedMount, with a back-off"
	inTheLane     = "when the operation is started: it waits for others of the pod, not of other pods"
)

// Table has all bounds.
var Table = [itemCount]Bound{
	Containers: {"containers", ContainersMax,
		"init, app and ephemeral containers of a pod", beforeSandbox,
		"Each is a record in every relist, and has its own directories, logs and cgroup."},
	Volumes: {"volumes", VolumesMax, "volumes of a pod", beforeSandbox,
		"Each is several file operations and a mount, and is measured."},
	Mounts: {"mounts", MountsMax, "volume mounts and devices of one container", beforeSandbox,
		"Each is a mount, and one of a sub-path also a file operation."},
	MountsOfPod: {"mounts_pod", MountsOfPodMax, "volume mounts and devices of a pod",
		beforeSandbox, "The same, and the status has each of them."},
	MountPaths: {"mount_path_bytes", MountPathsMax,
		"bytes of the paths of all volume mounts and devices of a pod", beforeSandbox,
		"The status has each of them, and so have its managedFields. The API server takes no object " +
			"above 1.5 MiB. 2048 mounts, as many as a pod may have, can have paths of 32 bytes."},
	SupplementalGroups: {"supplemental_groups", SupplementalGroupsMax,
		"supplementalGroups of a pod", beforeSandbox,
		"The runtime is given them with each container, and keeps them. The directories of users " +
			"have at most some hundred groups of one."},
	Images: {"images", ImagesMax,
		"images that the containers of a pod need: the one that each runs, and each mount of an image " +
			"volume", beforeSandbox,
		"Each is looked up, and may be pulled, for each run of the container."},
	Ports: {"ports", PortsMax, "ports of all containers of a pod", beforeSandbox,
		"The runtime keeps each as text, in a message that lists all containers, and forwards each " +
			"port of the host by a rule."},
	Resources: {"resources", ResourcesMax,
		"resources that the pod and its containers name in requests or limits", beforeSandbox,
		"They are summed whenever a pod is admitted, and the status has each of them."},
	ResourceNames: {"resource_name_bytes", ResourceNamesMax,
		"bytes of the names of resources in the requests and limits of the pod and its containers, and " +
			"in its overhead; a name counts each time", beforeSandbox,
		"The status of each container has three copies, that of the pod as many, and the record of " +
			"allocations one. Four names of a usual length in each of 256 containers have as many."},
	NodeSelector: {"node_selector", NodeSelectorMax,
		"labels of the nodeSelector, and terms, expressions and values of the required node affinity",
		beforeSandbox, "They are matched whenever the pod may be admitted."},
	Probes: {"probes_per_second", ProbesMax,
		"probes of a pod, each by its period; a startup probe counts like the others", beforeSandbox,
		"Each probe is an event of the loop, a connection or a process. The timeout of a probe has no " +
			"bound: a probe that waits takes one of the slots of its own pod, see probes_in_flight."},
	ProbeCommand: {"probe_command_bytes", ProbeCommandMax,
		"bytes of the command of an exec probe, after $(VAR) is expanded", beforeSandbox +
			"; in a pod that runs, and in a static pod, the probe fails to run",
		"The command is built for each run of the probe, and kept while the probe is in flight or " +
			"waits. A pod whose probe can never run would be unready, or not restarted, for ever."},
	ProbeMetrics: {"probe_metrics", ProbeMetricsMax,
		"probes of all pods that /metrics/probes has; pods with more than others have equal parts of " +
			"what those leave", "when the page is asked for: of a pod the first ones are kept",
		"The page is made in one step. A hundred pods may have forty each."},
	VolumeMetrics: {"volume_metrics", VolumeMetricsMax,
		"claims of all pods whose usage /metrics has; pods with more than others have equal parts of " +
			"what those leave", "when the page is asked for: of a pod the first ones are kept",
		"The same. Each has seven series."},
	Tokens: {"tokens", TokensMax, "different service account tokens of a pod", beforeSandbox,
		"All pods share the rate limit of the API server. Few pods have more than two audiences."},
	TokenRequests: {"token_requests_in_flight", TokenRequestsMax, "requests for tokens of a pod",
		"when a token is due: the next request waits for one of the pod", "The same."},
	DriverTokens: {"driver_tokens", DriverTokensMax,
		"service account tokens that CSI drivers ask for, of all volumes of a pod: each volume has " +
			"tokens of its own", "before a volume is published: FailedMount, with a back-off",
		"The same. Drivers ask for one or two, and few pods have more than a few such volumes."},
	TrustBundles: {"trust_bundles", TrustBundlesMax,
		"sources of a pod's volumes that select ClusterTrustBundles", beforeSandbox,
		"Each is matched against all bundles whenever the volumes are looked at."},
	PodCertificates: {"pod_certificates", PodCertificatesMax,
		"sources podCertificate of a pod's volumes", beforeSandbox,
		"Each has a private key made, and requests of its own. Few pods have more than two."},
	CertificateCalls: {"certificate_calls_in_flight", CertificateCallsMax,
		"operations for requests of a pod for certificates",
		"when a certificate is due: the next operation waits for one of the pod",
		"All pods share the rate limit of the API server, and the CPUs that keys are made on."},
	CertificateChain: {"certificate_chain_bytes", CertificateChainMax,
		"bytes of the chain of a certificate that a signer has issued for a source podCertificate",
		"when it is issued: the request counts as failed",
		"The API server takes no longer one. It is in memory twice, and in the volume."},
	CertificateRequest: {"certificate_request_bytes", CertificateRequestMax,
		"bytes of the spec and the status of a PodCertificateRequest that a pod awaits; its metadata " +
			"is not kept, nor any request that no pod awaits",
		"when the watch shows it: it counts as another one than was created, which is logged, and the " +
			"next one is created a minute later",
		"The agent watches all requests that name the node, and who may create such requests decides " +
			"how many there are, and how large. A chain, annotations and messages of the largest size " +
			"that the API server takes have fewer bytes: short annotations count twice here."},
	References: {"references", ReferencesMax,
		"different API objects that a pod refers to: ConfigMaps, Secrets, its RuntimeClass",
		beforeSandbox, "Each is a watch, of which all pods of a node together have 8192."},
	SmallPodReferences: {"references_small_pod", WatchesSmallMax,
		"as above; a quarter of the watches of a node is left to pods with no more than this",
		"before the first sandbox: a larger pod waits until other pods have ended, with a " +
			"BudgetExceeded event",
		"32 pods with as many references as they may have would otherwise leave none to others."},
	ReferenceBytes: {"reference_bytes", ReferenceBytesMax,
		"bytes of all ConfigMaps and Secrets that a pod refers to, with 64 more for each key; an " +
			"object that several pods refer to counts for each of them",
		"whenever one of them was read: the largest are read no more, with a BudgetExceeded event, and " +
			"again after a minute, later up to half an hour. Until all are within the bound the pod gets " +
			"no sandbox and no volume of theirs; in a pod that runs, volumes keep the content that they " +
			"have, and containers that take variables from them are not created",
		"The agent keeps them in memory, and as many as one pod may refer to have up to 256 MiB. " +
			"Few pods have a mebibyte; the bound has room for 15 objects of the largest size."},
	OwnVariables: {"own_variables", OwnVariablesMax,
		"environment variables of a container without those of services, those that are replaced " +
			"included", beforeCreate,
		"A ten-line pod can name an object of 1 MiB a hundred times, whose keys are sorted."},
	Variables: {"variables", VariablesMax,
		"environment variables of a container with those of services", beforeCreate,
		"5,000 services in a namespace are within what Kubernetes is tested with, and have at least " +
			"seven variables each."},
	VariableBytes: {"variable_bytes", VariableBytesMax,
		"bytes of one environment variable or argument, after $(VAR) is expanded", beforeCreate,
		"References of references double a value with each variable. The kernel starts no program " +
			"with more (execve(2))."},
	EnvironmentBytes: {"environment_bytes", EnvironmentMax,
		"bytes of all environment variables of a container", beforeCreate, "The same."},
	ArgumentBytes: {"argument_bytes", ArgumentsMax, "bytes of command and args of a container",
		beforeCreate, "The same."},
	ExpandedBytesOfPod: {"expanded_bytes_pod", ExpandedMax,
		"bytes of the environment variables, without those of services, and of command and args of " +
			"all containers of a pod that wait to be created, with 256 more for each variable",
		beforeCreate + "; containers of the pod that are created meanwhile make room",
		"They are built when they are checked, in one plan of the pod; the largest " +
			"container has as many."},
	SubPathBytes: {"sub_path_bytes", SubPathMax, "bytes of an expanded subPathExpr", beforeCreate,
		"The kernel has no longer path."},
	EnvFiles: {"env_files", EnvFilesMax,
		"files in volumes from which a container takes variables (fileKeyRef)", beforeCreate,
		"Each is a file operation for each run of the container."},
	EnvFileBytes: {"env_file_bytes", EnvFileBytesMax,
		"bytes of names and values from such files of all containers of a pod that wait to be created",
		beforeCreate, "The agent keeps them while a container waits for its images."},
	Files: {"files", FilesMax,
		"files of one volume from ConfigMaps, Secrets, tokens and fields, those that are replaced " +
			"included", beforeContent, "An object may be named repeatedly. As many files of a page each " +
			"are the largest volume."},
	ContentBytes: {"content_bytes", ContentMax, "bytes of such a volume", beforeContent, "The same."},
	ContentBytesOfPod: {"content_bytes_pod", ContentOfPodMax,
		"bytes that all such volumes of a pod take, each file in whole pages of 4096, those that are " +
			"replaced included", beforeContent,
		"Each volume may name the same object, and the agent writes most of them to memory."},
	NestedMounts: {"nested_mounts", NestedMountsMax, "mount points within one such volume",
		beforeContent, "Each is a file operation."},
	VolumeNames: {"volume_name_bytes", VolumeNamesMax,
		"bytes of the names, as the status of the Node has them, of the volumes to be attached that a " +
			"pod names itself: those of in-tree kinds, which CSI drivers mount",
		beforeAttach,
		"The status of the Node has those of all pods twice, and the API server takes no object above " +
			"1.5 MiB. A hundred volumes of the usual length have a third of it."},
	VolumeName: {"volume_name_bytes_one", VolumeNameMax,
		"bytes of one such name", beforeAttach,
		"The same. Those that clouds give their disks have less than a hundred."},
	VolumeHandle: {"volume_handle_bytes", VolumeHandleMax,
		"bytes of the handle of a volume of a CSI driver", beforeAttach,
		"Drivers keep what they need in it; it is in vol_data.json and in each call to the driver."},
	CSIVolumes: {"csi_volumes", CSIVolumesMax,
		"different volumes of CSI drivers that the pods of a node use, or that are still staged",
		beforeAttach, "Each is a record that is planned by itself. Few nodes may attach a hundred."},
	SmallPodCSIVolumes: {"csi_volumes_small_pod", CSIVolumesSmallMax,
		"as above; a quarter of the volumes of a node is left to pods with no more than this, and so " +
			"is a quarter of volume_name_bytes_node", beforeAttach,
		"Twelve pods with as many volumes as they may have would otherwise leave none to others."},
	VolumeNamesOfNode: {"volume_name_bytes_node", VolumeNamesOfNodeMax,
		"bytes of the names that volume_name_bytes is about, of all pods of a node", beforeAttach,
		"The same as there. Claims have names of their own, which the next bound is for."},
	ClaimNamesOfNode: {"claim_name_bytes_node", ClaimNamesOfNodeMax,
		"bytes of the names, as the status of the Node has them, of the volumes of claims of all pods",
		beforeAttach, "The same. As many volumes as a node may have take so many, with names of the " +
			"length that provisioners choose."},
	Disks: {"disks", DisksMax,
		"different disks of the kinds iscsi and fc that the pods of a node use, or that are not " +
			"removed yet", beforeAttach,
		"Each is a record that is planned by itself, and is compared with the others of its target."},
	SmallPodDisks: {"disks_small_pod", DisksSmallMax,
		"as above; a quarter of the disks of a node is left to pods with no more than this",
		beforeAttach, "Few pods with as many volumes as they may have would otherwise leave none to " +
			"others."},
	Portals: {"disk_portals", PortalsMax, "portals of a volume of the kind iscsi", beforeAttach,
		"Each is several commands, one after the other. Targets have two or four, for multipath."},
	PortalsOfDisk: {"disk_portals_all", PortalsOfDiskMax,
		"portals of one disk: those of all volumes that name it, and those that were logged in to, " +
			"until the disk is removed", beforeAttach +
			"; a volume that adds no portal is attached in any case",
		"All of them are in iscsi.json, which the next agent reads, and each is a command when the " +
			"disk is removed."},
	InlinePortalsOfDisk: {"disk_portals_inline", InlinePortalsOfDiskMax,
		"as above, for a volume that is written in a pod", beforeAttach,
		"The same. What is left has room for the portals of a claim, which authors of pods do not " +
			"choose."},
	Operations: {"operations", OperationsMax,
		"operations in flight of a pod, except stops and removals, which release something",
		"when an operation is issued: it fails after a second, and its owner backs off",
		"The table of operations is shared; the bound shrinks as it fills, in proportion to what is " +
			"free. A pod of 50 containers with three probes has fewer."},
	StopsInFlight: {"stops_in_flight", StopsInFlightMax,
		"requests to stop containers and sandboxes of a pod that the runtime has not answered",
		inTheLane, "Each takes as long as the grace period."},
	ProbesInFlight: {"probes_in_flight", ProbesInFlightMax,
		"probes and hooks of a pod that have not completed", inTheLane,
		"Each takes as long as the author of the pod likes."},
	SandboxMetadata: {"sandbox_metadata_bytes", SandboxMetadataMax,
		"bytes of labels and annotations of a pod that its sandbox has in the runtime",
		"before the sandbox is created; kubectl's last-applied-configuration is left out if they " +
			"exceed it",
		"The runtime lists all sandboxes in one message of at most 16 MiB, which has room for " +
			"about 500 of this size."},
	AllocationBytes: {"allocation_bytes", AllocationMax,
		"bytes of the names and amounts of the resources and of the host ports that a pod uses, as its " +
			"sandbox has them in the runtime", "before the sandbox is created", "The same."},
	ImageReference: {"image_reference_bytes", ImageReferenceMax, "bytes of a reference to an image",
		"before the image is looked up: InvalidImageName, with the first bytes of the reference",
		"A host name, a repository, a tag and a digest have fewer. A reference is parsed by a regular " +
			"expression, and events and messages quote it."},
	ImageReferencesOfPod: {"image_reference_bytes_pod", ImageReferencesOfPodMax,
		"bytes of all different references of a pod to images that are not too long", beforeSandbox +
			", nor others if images were changed",
		"The same. A hundred containers of different images may have 160 bytes each."},
	PullSecrets: {"pull_secrets", PullSecretsMax,
		"imagePullSecrets of a pod, those that are repeated included", beforeSandbox,
		"They are looked up for each container."},
	PullSecretBytes: {"pull_secret_bytes", PullSecretBytesMax,
		"bytes of the Docker configurations in the image pull secrets of a pod", beforeCreate,
		"They are decoded in one step. Forty long tokens have fewer."},
	PullRegistries: {"pull_registries", PullRegistriesMax,
		"registries and paths for which the image pull secrets of a pod have credentials", beforeCreate,
		"They are sorted, and those of a registry are looked through for each image."},
	PullWildcardBytes: {"pull_wildcard_bytes", PullWildcardBytesMax,
		"bytes of the hosts among them that have wildcards, such as *.example.com", beforeCreate,
		"Each is matched against each image, in a time that grows with the product of the lengths."},
	PullCredentials: {"pull_credentials", PullCredentialsMax, "different credentials for one image",
		beforeCreate, "Each that the registry refuses is one more pull, without a back-off."},
	PullCredentialBytes: {"pull_credential_bytes", PullCredentialBytesMax,
		"bytes of all user names and passwords for one image", beforeCreate,
		"The agent keeps them for each image that a container waits for."},
	Message: {"message_bytes", MessageMax, "bytes of a message in the status of a pod, or in an event",
		"when the status or the event is made: the message is cut",
		"The API server takes no status above 1.5 MiB with the spec, and would never know how the pod " +
			"is. Termination messages have the kubelet's smaller bounds."},
	ContainerMessagesOfPod: {"container_message_bytes_pod", ContainerMessagesOfPodMax,
		"bytes of the messages of all containers in the status of a pod; each has an equal part",
		"when the status is made: the message is cut", "The same."},
	ContainerGroups: {"container_groups", ContainerGroupsMax,
		"supplemental groups of the first process of a container, as the runtime reports them",
		"when the runtime reports them: the first ones are kept",
		"The same. An image can list its user in any number of groups."},
	ContainerGroupsOfPod: {"container_groups_pod", ContainerGroupsOfPodMax,
		"such groups of all containers in the status of a pod; each has an equal part",
		"when the status is made: the first ones are kept", "The same."},
	ContainerImagesOfPod: {"container_image_bytes_pod", ContainerImagesOfPodMax,
		"bytes of the images of all containers in the status of a pod, and as many of their IDs; each " +
			"has an equal part", "when the status is made: the name is cut",
		"The same. All containers may have the same image, whose reference counts once elsewhere."},
	ReasonBytes: {"reason_bytes", ReasonMax,
		"bytes of the reason that the runtime gives for the end of a container",
		"when it is recorded: the reason is cut", "The same. A reason is one word."},
}

// Name returns the name of an item in metrics.
func (i Item) Name() string { return Table[i].Name }

// Exceeded is the error of a pod that exceeds a bound.
type Exceeded struct {
	Item    Item
	Message string // names the number, as far as it is known, and the bound
}

func (e *Exceeded) Error() string { return e.Message }

// Errorf returns an error for an item.
func (i Item) Errorf(format string, args ...any) error {
	return &Exceeded{i, fmt.Sprintf(format, args...)}
}

// NameOf returns the name of the item that an error is about; empty if it is about none.
func NameOf(err error) string {
	if exceeded, ok := errors.AsType[*Exceeded](err); ok {
		return exceeded.Item.Name()
	}
	return ""
}

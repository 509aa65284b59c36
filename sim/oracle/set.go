package oracle

import (
	"fmt"
	"iter"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// Set is the set of all oracles of one run, and the model that they share. It is for use
// by one goroutine.
type Set struct {
	model         *model
	factOracles   []factOracle
	servedOracles []servedOracle
	violated      map[string]bool
	current       truth.Fact // the fact that is being checked
	violations    []Violation
}

// Options describe the node to the oracles.
type Options struct {
	NodeName         string
	PodsDir, LogsDir string        // where each pod has a directory, and one of logs
	BackoffMax       time.Duration // between restarts of a container; zero: 300 s

	LogLinksDir        string                          // of links to the logs of running containers
	LogBytesMax        int64                           // the size from which a log is to be rotated
	LogFilesMax        int                             // of one run of a container
	LogMonitorInterval time.Duration                   // between two checks of a log
	ListFiles          func(dir string) iter.Seq[File] // lists a directory; nil: files are not checked

	DiskUsage func(path string) int64 // the bytes below a path; nil: usage is not checked
	// IsUnmeasurable reports whether a tree is too large to be measured. Nil: none is.
	IsUnmeasurable func(path string) bool
	// DeviceAt returns the device that is mounted at a path, links followed; false if none is.
	// Nil: devices are not checked.
	DeviceAt func(path string) (device string, isMounted bool)
	// DeviceBytes returns the size of a device; nil: sizes are not checked.
	DeviceBytes func(device string) int64
	// Exists reports whether something is at a path. Nil: everything is.
	Exists func(path string) bool
	// GroupOf returns the group of a file, and false if the file does not exist. Nil: groups are not
	// checked.
	GroupOf func(path string) (gid int64, exists bool)
	// ReadFile returns the content of a file, and false if the file does not exist. Nil: content is
	// not checked.
	ReadFile func(path string) ([]byte, bool)

	Cgroups Cgroups // of pods
	Tiers   *Tiers  // the cgroups above those of the pods; nil: not checked
	// SystemCgroups are the directories of the cgroups of other programs.
	SystemCgroups []string

	MemoryBytes int64 // the memory capacity of the node
	Pressure    Pressure
	// NodeUsage returns what the machine uses now. Nil: node-pressure eviction is not checked.
	NodeUsage func() world.NodeMeasured
	// ContainerMemory returns how many bytes of memory a container uses now, by its ID. Nil: what it
	// used at its start.
	ContainerMemory func(id string) int64
	// Filesystem returns the state of the file system that the signals of a source are about: that of
	// the agent's root directory ("nodefs"), or that of the images ("imagefs").
	Filesystem func(source string) world.FilesystemMeasured
	DNS        DNS // of the node

	// FaultPossible reports whether a fault may have applied to a call of this name that was in flight
	// between the two times: to its request, in the port, or to its response. Oracles see only
	// what the model sees, so this is where they look up their excuses. Nil: no fault ever
	// applies.
	FaultPossible func(call string, from, to time.Time) bool
	EventedPLEG   bool // the agent uses EventedPLEG
	// ImageUser returns the user of an image, by number or name. Nil: every image runs as root.
	ImageUser func(ref string) string

	// PullUsers are the users of the registry that may pull an image, by its reference; everybody may
	// pull the others. PullPolicy says of which images on the node the credentials of pods are
	// verified; empty: of none.
	PullUsers  map[string][]string
	PullPolicy kubeletconfig.ImagePullCredentialsVerificationPolicy
	// UserAnnotation is the annotation of a service account that names the user of the registry which
	// plugins get credentials of for its pods; empty: there are no plugins.
	UserAnnotation string
	// NodePulls are the private images that every pod can pull, with credentials of the node.
	NodePulls map[string]bool

	// IsHostile reports whether a pod, by its name, does not have to run: it harms the others. Nil:
	// no pod does.
	IsHostile    func(name string) bool
	ImageGC      ImageGC
	AbsentImages []string // from the start, until they are pulled
	// UnusedImages are on the node from the start, no pod uses them, and they are not pinned.
	UnusedImages []string
	// ImagesApart reports that the images have a file system of their own, LayersApart that the
	// writable layers are on it. LayersPath is their directory, if they have one of their own.
	ImagesApart, LayersApart bool
	LayersPath               string
	// HungDrivers are the CSI drivers that answer no call for a volume before the faults heal.
	HungDrivers []string
	// LastFault returns when, at a time, a fault of any kind last applied; zero: none has. Nil: no
	// fault ever applies.
	LastFault func(now time.Time) time.Time

	// IsCalm reports whether nothing has gone wrong yet by the plan, so that there is nothing to
	// excuse. Nil: not known.
	IsCalm func() bool

	Node *NodeFacts // nil: the Node is not checked

	HasAPIServer bool // the node has an API server
	SELinux      bool // the machine enforces SELinux
	// LabelsAllModes has volumes of all access modes mounted with the SELinux labels of their pods,
	// not only those of ReadWriteOncePod.
	LabelsAllModes bool
	// NodeAddresses are those of the machine, the first one first. Empty: they are not checked.
	NodeAddresses []string
	// Allocatable is the node allocatable. Nil: resources are not checked.
	Allocatable v1.ResourceList
	// RegisteredNode is the Node as the agent registers it if there is none. Nil: not known.
	RegisteredNode *v1.Node

	// ChangeDetection is how the agent detects changes of ConfigMaps and Secrets.
	ChangeDetection ChangeDetection

	Shutdown *Shutdown // nil: shutdowns of the machine are not delayed

	Periods Periods // of the calls that the agent makes while nothing changes

	// ClockSkew returns the error of the runtime's clock at a time. Nil: the clock is right.
	ClockSkew func(time.Time) time.Duration
	// DateOffset returns how far the machine's date is ahead at a time. Nil: the date is right.
	DateOffset func(time.Time) time.Duration
}

// Violation is an invariant that did not hold.
type Violation struct {
	Oracle, Message string
	Time            time.Time // when it was violated, which may be before that was noticed
}

// Entry documents an oracle: its name, which is the signature of its failures, and its invariant.
type Entry struct{ Name, Invariant string }

// oracle is one invariant.
type oracle interface {
	describe() Entry
}

// A factOracle checks each fact. The model is as it was just before the fact. The fact must not
// be retained.
type factOracle interface {
	oracle
	checkFact(m *model, f *truth.Fact) *finding
}

// A servedOracle checks the statuses that GET /pods served.
type servedOracle interface {
	oracle
	checkServed(m *model, now time.Time, pods []*v1.Pod) *finding
}

// finding is a violation that an oracle has found; nil: none.
type finding struct {
	message string
	time    time.Time // zero: now
}

// findingf returns a finding of now.
func findingf(format string, args ...any) *finding {
	return &finding{message: fmt.Sprintf(format, args...)}
}

// oracles returns a new instance of every oracle, in the order in which they check. An oracle
// that is not in this list does not run.
func oracles() []oracle {
	return []oracle{
		&oneRun{}, &initOrder{}, &restartPolicy{}, &backoff{}, &terminalPhase{}, &restartCount{},
		&gracePeriod{}, &onePerFullName{}, &uidReuse{}, &sidecarOrder{}, &hooks{}, &probes{},
		&activeDeadline{}, &needlessStop{}, &readiness{}, &podDirectories{}, &podVolumes{},
		&volumeClaims{},
		&volumeContent{}, &volumeStaleness{}, &volumeReadOnly{}, &environment{}, &images{},
		&imageAccess{}, &imageIntents{}, &podCertificates{},
		&imageGC{}, &containerGC{},
		&reclaim{},
		&containerConfig{}, &sandboxConfig{}, &sandboxRate{}, &logs{}, &terminationMessage{},
		&health{},
		&cgroups{}, &tiers{}, &resize{}, &resizeAdmission{},
		&resizeRecords{}, &userNamespaces{}, &restartAll{},
		&eviction{}, &nodePressure{}, &systemOOM{}, &oomKilled{},
		&apiTerminalPhase{}, &apiTerminalStopped{}, &apiIdentity{},
		&apiDeletion{}, &containerStates{}, &podIPs{}, &nodeObject{},
		&transitions{}, &heartbeat{}, &dates{}, &events{}, &admission{}, &preemption{},
		&nodeShutdown{}, &nodePlugins{},
		&csiVolumes{}, &csiLabels{}, &csiGroups{}, &diskLabels{}, &csiData{}, &csiOrder{},
		&csiCalls{}, &csiRelease{}, &csiStats{},
		&csiContent{}, &csiRepublish{}, &ephemeralClaims{},
		&volumeDevices{}, &deviceSizes{}, &disks{}, &csiExpand{}, &csiLimit{},
		&ephemeralContainers{}, &httpAPI{},
		&nothingChanges{},
		&isolation{}, &setAside{}, &runtimeReady{}, &podCost{}, &storageReads{}, &economy{}, &strict{},
		&progress{},
	}
}

// Catalogue returns the entries of all oracles, in the order in which they check.
func Catalogue() []Entry {
	var entries []Entry
	for _, o := range oracles() {
		entries = append(entries, o.describe())
	}
	return entries
}

// NewSet returns the oracles of a run in which nothing has happened yet.
func NewSet(opts Options) *Set {
	s := &Set{model: newModel(opts), violated: map[string]bool{}}
	for _, o := range oracles() {
		if o, ok := o.(factOracle); ok {
			s.factOracles = append(s.factOracles, o)
		}
		if o, ok := o.(servedOracle); ok {
			s.servedOracles = append(s.servedOracles, o)
		}
	}
	return s
}

// CheckFact checks a fact of package truth, then applies it to the model.
func (s *Set) CheckFact(f truth.Fact) {
	s.current = f
	s.model.noteShortages(f.Time)
	s.model.advanceShutdown(f.Time)
	for _, o := range s.factOracles {
		if problem := o.checkFact(s.model, &s.current); problem != nil {
			s.report(o, problem, f.Time)
		}
	}
	s.model.apply(&s.current)
}

// CheckServed checks the statuses that GET /pods served, then records them. The pods are not
// retained.
func (s *Set) CheckServed(now time.Time, pods []*v1.Pod) {
	s.model.now = now
	s.model.advanceShutdown(now)
	for _, o := range s.servedOracles {
		if problem := o.checkServed(s.model, now, pods); problem != nil {
			s.report(o, problem, now)
		}
	}
	s.model.applyServed(now, pods)
}

// report records the first violation of an oracle. Later ones of the same oracle are dropped.
func (s *Set) report(o oracle, problem *finding, now time.Time) {
	name := o.describe().Name
	if s.violated[name] || s.model.kubeletRuns {
		return // it is not judged
	}
	s.violated[name] = true
	if problem.time.IsZero() {
		problem.time = now
	}
	s.violations = append(s.violations, Violation{name, problem.message, problem.time})
	slices.SortStableFunc(s.violations, func(a, b Violation) int { return a.Time.Compare(b.Time) })
}

// PodDesired reports that a manifest or the API server now has a pod, as package manifest decodes
// it: named, with its UID and with defaults. A UID that comes again was rewritten, or is back.
func (s *Set) PodDesired(now time.Time, pod *v1.Pod) { s.model.setDesired(now, pod) }

// PodNoLongerDesired reports that the manifest of a pod was removed or replaced.
func (s *Set) PodNoLongerDesired(now time.Time, uid string) { s.model.unsetDesired(now, uid) }

// GracePeriodShortened reports that a pod is to be terminated within a grace period that may be
// shorter than its own.
func (s *Set) GracePeriodShortened(uid string, grace time.Duration) {
	if pod := s.model.pods[uid]; pod != nil {
		pod.minGrace = min(pod.minGrace, grace)
	}
}

// AgentStarted reports that an incarnation of the agent starts, the first one included.
func (s *Set) AgentStarted(now time.Time) { s.model.agentStarted(now) }

// ConfigurationChanged reports that the next agents have a configuration that may lead to another
// node allocatable and other limits of cgroups.
func (s *Set) ConfigurationChanged(allocatable v1.ResourceList, tiers *Tiers, node *NodeFacts) {
	s.model.nextAllocatable, s.model.opts.Node = allocatable, node
	s.model.tiersBefore, s.model.opts.Tiers = s.model.opts.Tiers, tiers
}

// AgentKilled reports that an incarnation of the agent ends.
func (s *Set) AgentKilled(now time.Time) { s.model.agentKilled(now) }

// Healed reports that no fault applies from now on. Containers still exit by their scripts.
func (s *Set) Healed(now time.Time) { s.model.heal(now) }

// Violations returns the violations so far, in order of time, at most one for each oracle.
func (s *Set) Violations() []Violation { return s.violations }

package allocation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// harness plans one file of a store whose other file is not looked at.
type harness struct {
	t       *testing.T
	store   Store
	key     timer.Key
	table   op.Table
	effects op.Effects
	now     time.Time
	logs    []string
}

func newHarness(t *testing.T) *harness {
	return &harness{t: t, store: Store{Dir: "/root"}, key: Keys()[0], now: time.Unix(0, 0)}
}

// plan returns what the plan issues; nil if nothing.
func (h *harness) plan() any {
	h.effects.Reset(&h.table, h.now)
	h.store.Plan(h.key, &h.effects)
	for _, e := range h.effects.List() {
		if e.Op != 0 {
			return e.Body
		}
	}
	return nil
}

func (h *harness) complete(call string, body any, err *world.Error) {
	h.effects.Reset(&h.table, h.now)
	h.store.HandleCompletion(op.Record{Owner: h.key, Call: call, Subject: "/root/" + AllocatedFile},
		world.Event{Time: h.now, Body: body, Err: err}, &h.effects)
	for _, e := range h.effects.List() {
		if l, isLog := e.Body.(*world.Log); isLog {
			h.logs = append(h.logs, fmt.Sprint(l.Message, l.Fields))
		}
	}
}

// load completes the read of the file, which does not exist if it has no content.
func (h *harness) load(content string) {
	if h.plan(); content == "" {
		h.complete("ReadFiles", nil, world.Errorf(world.KindNotFound, "ReadFiles", "none"))
		return
	}
	h.complete("ReadFiles", &world.FilesRead{Files: []world.File{{Data: []byte(content)}}}, nil)
}

// write completes a write, and returns the data in it.
func (h *harness) write() string {
	h.t.Helper()
	w, isWrite := h.plan().(*world.WriteFile)
	if !isWrite {
		h.t.Fatal("nothing is written")
	}
	h.complete("WriteFile", &world.Done{}, nil)
	return string(w.Data)
}

// The kubelet's own file, from the tests of its state package.
const kubeletFile = `{"data":"{\"entries\":{\"pod1\":{\"ContainerResources\":{\"container1\":` +
	`{\"requests\":{\"cpu\":\"1Ki\",\"memory\":\"1Ki\"}}}}}}","checksum":1178570812}`

// A file of the kubelet is read, and nothing is written until there is a change.
func TestFileOfKubelet(t *testing.T) {
	h := newHarness(t)
	h.load(kubeletFile)
	if got, _ := recorded(&h.store.Allocated, "pod1", "container1"); got.CPURequest != 1024_000 {
		t.Fatalf("read %+v; %q", h.store.Allocated, h.logs)
	}
	h = newHarness(t)
	h.load("")
	h.store.Allocated.Set("pod1", Of(newPod()))
	content := h.write()
	again := newHarness(t)
	again.load(content)
	if again.plan() != nil || !again.store.Allocated.IsStored("pod1") || len(again.logs) > 0 {
		t.Errorf("own file %s: %q", content, again.logs)
	}
}

// withChecksum corrects the checksum of a file.
func withChecksum(text string) string {
	var c checkpoint
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	c.Checksum = checksum(c.Data)
	data, err := json.Marshal(&c)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func TestDamagedFiles(t *testing.T) {
	for content, want := range map[string]string{
		"{":                         "unexpected end of JSON input",
		`{"data":"x","checksum":1}`: "checksum: 1, and that of the data is",
		withChecksum(strings.Replace(kubeletFile, "1Ki", "1e-999999999", 1)): "entries.pod1." +
			"ContainerResources.container1.requests.cpu: the exponent of a quantity has at most three",
		`{"data":"","checksum":0}`:                   "checksum: 0, and that of the data is",
		strings.Replace(kubeletFile, "1Ki", "1K", 1): "checksum: 1178570812, and that of the data is",
	} {
		h := newHarness(t)
		h.load(content)
		if f := &h.store.Allocated; !f.Loaded || len(f.Pods) > 0 || len(h.logs) != 1 ||
			!strings.Contains(h.logs[0], want) ||
			!strings.Contains(h.logs[0], "/root/"+AllocatedFile) {
			t.Errorf("%s: %+v, %q", content, h.store.Allocated, h.logs)
		}
	}
}

// A file that does not exist is empty. One that cannot be read is tried three times.
func TestFailedReads(t *testing.T) {
	h := newHarness(t)
	h.plan()
	h.complete("ReadFiles", nil, world.Errorf(world.KindNotFound, "ReadFiles", "none"))
	if !h.store.Allocated.Loaded || h.store.IsLoaded() {
		t.Error("without a file")
	}
	h = newHarness(t)
	for range readsMax {
		if h.store.Allocated.Loaded || h.plan() == nil {
			t.Fatal("is not read again")
		}
		h.complete("ReadFiles", nil, world.Errorf(world.KindInternal, "ReadFiles", "broken"))
		h.now = h.now.Add(backoffMax)
	}
	if !h.store.Allocated.Loaded || len(h.logs) != 1 {
		t.Errorf("after %d reads: %+v, %q", readsMax, h.store.Allocated, h.logs)
	}
}

// A pod is stored once a write has succeeded that was issued after its change. A missing directory
// is made.
func TestWrites(t *testing.T) {
	h := newHarness(t)
	h.load("")
	f := &h.store.Allocated
	f.Set("a", Of(newPod()))
	h.plan()
	f.Set("b", Of(newPod()))
	if h.plan() != nil {
		t.Error("two writes at a time")
	}
	h.complete("WriteFile", &world.Done{}, nil)
	if !f.IsStored("a") || f.IsStored("b") || f.IsStored("c") {
		t.Errorf("after the first write: %+v", f)
	}
	h.plan()
	h.complete("WriteFile", nil, world.Errorf(world.KindNotFound, "WriteFile", "no directory"))
	if d, isDir := h.plan().(*world.MakeDir); !isDir || d.Path != "/root" {
		t.Error("no directory is made")
	}
	h.complete("MakeDir", &world.Done{}, nil)
	for range 2 {
		h.plan()
		h.complete("WriteFile", nil, world.Errorf(world.KindExhausted, "WriteFile", "full"))
		if h.plan() != nil {
			t.Error("no back-off")
		}
		h.now = h.now.Add(backoffMax)
	}
	if h.write(); !f.IsStored("b") || len(h.logs) != 1 {
		t.Errorf("in the end %+v, %q", f, h.logs)
	}
}

// A pod that goes and comes back as it was changes nothing. After a failed write that is not known.
func TestUnchangedContent(t *testing.T) {
	h := newHarness(t)
	h.load("")
	f := &h.store.Allocated
	f.Set("a", Of(newPod()))
	h.write()
	f.Remove("a")
	f.Set("a", Of(newPod()))
	if h.plan() != nil || !f.IsStored("a") {
		t.Error("the same content is written again")
	}
	f.Set("b", Of(newPod()))
	h.plan()
	h.complete("WriteFile", nil, world.Errorf(world.KindTimeout, "WriteFile", "late"))
	f.Remove("b")
	f.Set("a", Of(newPod()))
	h.now = h.now.Add(backoffMax)
	h.write()
}

// Pods that were added before the read stay as they are; others come from the file.
func TestReadAfterPods(t *testing.T) {
	h := newHarness(t)
	h.load("")
	h.store.Allocated.Set("a", Of(newPod()))
	h.store.Allocated.Set("b", Of(newPod()))
	content := h.write()
	h = newHarness(t)
	changed := newPod()
	changed.Spec.Containers[0].Resources.Requests = resources("7", "")
	h.store.Allocated.Set("a", Of(changed))
	h.load(content)
	f := &h.store.Allocated
	got, _ := recorded(f, "a", "app")
	if got.CPURequest != 7000 || f.Get("b") == nil || f.IsStored("a") {
		t.Errorf("after the read: %+v", f)
	}
	if !strings.Contains(h.write(), `\"cpu\":\"7\"`) {
		t.Error("the difference is not written")
	}
}

func TestBound(t *testing.T) {
	h := newHarness(t)
	for i := range recordedMax {
		if !h.store.Allocated.Set(fmt.Sprint(i), Resources{}) {
			t.Fatalf("pod %d is refused", i)
		}
	}
	if h.store.Allocated.Set("more", Resources{}) || !h.store.Allocated.Set("0", Resources{}) {
		t.Error("the bound is not that of different pods")
	}
	h.store.Retain(func(uid string) bool { return uid == "7" })
	if len(h.store.Allocated.Pods) != 1 {
		t.Errorf("retained %d", len(h.store.Allocated.Pods))
	}
}

func TestActuated(t *testing.T) {
	s := Store{}
	amounts := map[string]Amounts{"app": {100, 0, 1 << 20, 2 << 20}, "side": {}}
	if !s.SetActuated("a", amounts, nil) || s.SetActuated("a", amounts, nil) {
		t.Error("a change is not told from none")
	}
	for name, want := range amounts {
		if got, known := s.RecordedAmounts("a", name); !known || got != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if _, known := s.RecordedAmounts("a", "other"); known {
		t.Error("another container is known")
	}
	if _, known := s.RecordedAmounts("b", "app"); known {
		t.Error("another pod is known")
	}
	for _, change := range []map[string]Amounts{{"app": {}}, {"app": {}, "other": {}}} {
		if !s.SetActuated("a", change, &v1.ResourceRequirements{}) {
			t.Errorf("%v is no change", change)
		}
	}
}

// A pod waits with its start for its entry, but not for a disk that cannot be written to.
func TestMustWait(t *testing.T) {
	s := Store{Allocated: File{Loaded: true}}
	s.Allocated.Set("b", Resources{})
	s.Allocated.Set("a", Resources{})
	for _, uid := range []string{"b", "a", "a"} {
		if !s.MustWait(uid) {
			t.Errorf("%s does not wait", uid)
		}
	}
	if s.MustWait("c") || !slices.Equal(s.Waiting, []string{"a", "b"}) {
		t.Errorf("waiting are %v", s.Waiting)
	}
	s.Allocated.Stored = 1
	if s.MustWait("b") || !s.MustWait("a") {
		t.Error("b is on the disk, and a is not")
	}
	if s.Allocated.Failures = 1; s.MustWait("a") {
		t.Error("a waits for a disk that cannot be written to")
	}
}

// Pods that name any resources cannot make the file too large to be read again.
func TestFileIsBounded(t *testing.T) {
	var f File
	list := v1.ResourceList{}
	for i := range 2000 {
		name := v1.ResourceName(strings.Repeat("x", 300) + fmt.Sprint(i))
		list[name] = resource.MustParse("1")
	}
	r := Resources{Containers: map[string]v1.ResourceRequirements{"c": {Requests: list}}}
	refused := 0
	for i := range 100 {
		if !f.Set(fmt.Sprint(i), r) {
			refused++
		}
	}
	if refused != 100 {
		t.Errorf("%d pods are refused that take more than one pod may", refused)
	}
}

// Large pods take no more than their part: as many small ones as a file may have are recorded
// beside them.
func TestLargePodsLeaveRoomForSmallOnes(t *testing.T) {
	ofBytes := func(bytes int) Resources {
		return Resources{Containers: map[string]v1.ResourceRequirements{
			strings.Repeat("c", bytes-len(`{"ContainerResources":{"":{}},"PodLevelResources":null}`)): {}}}
	}
	var f File
	if f.Set("larger", ofBytes(entryBytesMax+1)) {
		t.Error("one pod takes more than its share")
	}
	taken := 0
	for f.Set(fmt.Sprint("large", taken), ofBytes(entryBytesMax)) {
		taken++
	}
	if taken != largeBytesMax/entryBytesMax || f.Set("large", ofBytes(smallBytes+1)) {
		t.Errorf("%d large pods are recorded", taken)
	}
	for i := range recordedMax - taken {
		if !f.Set(fmt.Sprint("small", i), ofBytes(smallBytes)) {
			t.Fatalf("small pod %d is refused", i)
		}
	}
	if n := len(f.text()); n > recordedBytesMax*11/10 {
		t.Errorf("%d bytes", n)
	}
	f.Set("large0", ofBytes(smallBytes))
	s := Store{Allocated: f}
	s.Retain(func(uid string) bool { return uid != "large1" })
	s.Allocated.Remove("large2")
	s.Allocated.Remove("large2")
	if got, want := s.Allocated.LargeBytes, (taken-3)*entryBytesMax; got != want {
		t.Errorf("the sum is %d bytes, want %d", got, want)
	}
	encoded, err := json.Marshal(&s.Allocated)
	var restored File
	if err != nil || json.Unmarshal(encoded, &restored) != nil {
		t.Fatal(err)
	}
	if restored.Remove("large3"); restored.LargeBytes != (taken-4)*entryBytesMax {
		t.Errorf("after a restart the sum is %d bytes", restored.LargeBytes)
	}
}

// What a pod at its bounds needs is within its share, so that it can always be resized while there
// is room.
func TestEntryOfPodAtItsBounds(t *testing.T) {
	const amount = "999999999999999999m" // no canonical text is longer
	spec := v1.PodSpec{}
	each := budget.ResourcesMax / budget.ContainersMax
	nameBytes := budget.ResourceNamesMax / budget.ResourcesMax / 2
	for i := range budget.ContainersMax {
		list := v1.ResourceList{}
		for k := range each {
			name := v1.ResourceName(fmt.Sprintf("%0*d", nameBytes, k))
			list[name] = resource.MustParse(amount)
		}
		spec.Containers = append(spec.Containers, v1.Container{Name: fmt.Sprintf("%063d", i),
			Resources: v1.ResourceRequirements{Requests: list, Limits: list}})
	}
	if err := budget.CheckSpec(&spec, 0, 0); err != nil {
		t.Fatal(err)
	}
	var f File
	r := Of(&v1.Pod{Spec: spec})
	if !f.Set("u", r) {
		t.Errorf("%d bytes are refused, one pod may take %d", len(r.encode()), entryBytesMax)
	}
}

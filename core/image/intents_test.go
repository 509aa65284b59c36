package image

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"pgregory.net/rapid"

	"seedlet.dev/core/pullrecord"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// puller has the pulls of a store recorded on a disk. Its operations are completed one by one.
type puller struct {
	planner
	issued []world.Effect
	disk   map[string]bool // the files of intents
	most   int             // of these
	pulled []string        // in order
	early  []string        // pulls that were started before their intent was on the disk
}

func newPuller(parallel int) *puller {
	p := &puller{planner: planner{now: t0}, disk: map[string]bool{}}
	p.store = Store{Limits: Limits{ParallelMax: parallel}, Records: pullrecord.Store{Dir: "/im",
		IsListed: true, Settings: pullrecord.Settings{Policy: kubeletconfig.NeverVerifyPreloadedImages}}}
	p.queue = []timer.Key{pullrecord.Owner}
	p.plan()
	for len(p.issued) > 0 { // the reads
		p.complete(0, nil)
	}
	return p
}

// need has a pod need an image.
func (p *puller) need(pod, ref string) {
	p.store.Require(pod, Request{Ref: ref}, v1.PullAlways, t0)
	p.queue = append(p.queue, Key(ref))
	p.plan()
}

// plan plans what is enqueued or due.
func (p *puller) plan() {
	p.planUntilIdle(func(e world.Effect) {
		if e.Op == 0 {
			return
		}
		if pull, is := e.Body.(*runtimeapi.PullImageRequest); is && !p.isOnDisk(pull.Image.Image) {
			p.early = append(p.early, pull.Image.Image)
		}
		p.issued = append(p.issued, e)
	})
}

func (p *puller) isOnDisk(ref string) bool {
	for _, i := range p.store.Records.Intents { //ordered: whether there is one
		if i.Image == ref && i.Saved > 0 {
			return true
		}
	}
	return false
}

// complete completes an operation.
func (p *puller) complete(at int, err *world.Error) {
	e := p.issued[at]
	p.issued = slices.Delete(p.issued, at, at+1)
	r, _ := p.table.Complete(e.Op)
	p.out.Reset(&p.table, p.now)
	ev := world.Event{Time: p.now, Op: e.Op, Err: err}
	if err == nil {
		ev.Body = p.carryOut(e.Body)
	}
	if r.Owner == pullrecord.Owner {
		_, names := p.store.HandleRecordCompletion(r, ev, &p.out)
		for _, name := range names {
			p.queue = append(p.queue, Key(name))
		}
	} else {
		p.handlePull(r, ev)
		p.queueHead()
	}
	p.queue = append(p.queue, r.Owner)
	p.plan()
}

func (p *puller) carryOut(body any) any {
	switch b := body.(type) {
	case *world.ReadFiles:
		return &world.FilesRead{Directory: true}
	case *runtimeapi.PullImageRequest:
		p.pulled = append(p.pulled, b.Image.Image)
		return &runtimeapi.PullImageResponse{ImageRef: "sha256:" + b.Image.Image}
	case *runtimeapi.ImageStatusRequest:
		return &runtimeapi.ImageStatusResponse{}
	case *world.WriteFile:
		if strings.Contains(b.Path, "/pulling/") {
			p.disk[b.Path] = true
			p.most = max(p.most, len(p.disk))
		}
	case *world.RemoveTree:
		delete(p.disk, b.Path)
	}
	return &world.Done{}
}

// farIntent returns an image with an intent that waits too far from the front of the queue for one;
// empty if there is none.
func (p *puller) farIntent() string {
	waiting := p.store.PullQueue.Waiting
	for _, far := range waiting[min(intentsKept, len(waiting)):] {
		for _, i := range p.store.Records.Intents { //ordered: whether there is one
			if slices.Contains(i.Pullers, far.Name) {
				return far.Name
			}
		}
	}
	return ""
}

// firstOf returns the index of the first operation in flight that is a pull, or is none; -1 if
// there is none.
func (p *puller) firstOf(isPull bool) int {
	return slices.IndexFunc(p.issued, func(e world.Effect) bool {
		_, is := e.Body.(*runtimeapi.PullImageRequest)
		return is == isPull
	})
}

// Of the images that wait for a slow registry, only the next have an intent on the disk: an agent
// that is started later has little to read. Later pods take their turns all the same.
func TestQueuedImagesHaveNoIntent(t *testing.T) {
	for _, parallel := range []int{1, 3, 0} {
		p := newPuller(parallel)
		for i := range 300 {
			p.need("greedy", fmt.Sprintf("greedy-%03d", i))
		}
		for i := range 6000 {
			if i == 50 {
				for k := range 90 {
					p.need(fmt.Sprint("pod-", k), fmt.Sprint("other-", k))
				}
			}
			p.now = p.now.Add(50 * time.Millisecond)
			p.plan()
			if far := p.farIntent(); far != "" {
				t.Fatalf("%d at once: %s has an intent, and waits far from the front", parallel, far)
			}
			at := p.firstOf(false)
			if at < 0 {
				at = p.firstOf(true)
			}
			if at < 0 {
				break
			}
			p.complete(at, nil)
		}
		if len(p.pulled) != 390 || len(p.early) > 0 || len(p.disk) > 0 ||
			len(p.store.Records.Intents) > 0 {
			t.Errorf("%d at once: %d of 390 images pulled, %d before their intent; %d intents left",
				parallel, len(p.pulled), len(p.early), len(p.disk))
		}
		if most := intentsKept + preparedMax + parallel; parallel > 0 && p.most > most {
			t.Errorf("%d at once: %d intents were on the disk, want at most %d", parallel, p.most, most)
		}
		if last := slices.Index(p.pulled, "other-89"); parallel > 0 && last > 200 {
			t.Errorf("%d at once: the last pod's image is pull %d", parallel, last)
		}
	}
}

// While the disk takes no intent, no pull begins, and few intents wait for the disk. Each pull
// begins once its own intent is there.
func TestQueuedImagesOnFullDisk(t *testing.T) {
	p := newPuller(1)
	full := world.Errorf(world.KindExhausted, "WriteFile", "no space left on device")
	for i := range 200 {
		p.need(fmt.Sprint("pod-", i%7), fmt.Sprint("i", i))
	}
	for range 100 {
		for p.firstOf(false) >= 0 {
			p.complete(p.firstOf(false), full)
		}
		p.now = p.now.Add(time.Second)
		p.plan()
	}
	if n := len(p.store.Records.Intents); n == 0 || n > 2*preparedMax || len(p.pulled) > 0 {
		t.Errorf("%d intents wait, %d images pulled", n, len(p.pulled))
	}
	for range 1000 {
		for len(p.issued) > 0 {
			p.complete(0, nil)
		}
		p.now = p.now.Add(time.Second)
		p.plan()
	}
	if len(p.pulled) != 200 || len(p.early) > 0 || len(p.store.Records.Intents) > 0 {
		t.Errorf("%d of 200 images pulled, %d before their intent, %d intents are left", len(p.pulled),
			len(p.early), len(p.store.Records.Intents))
	}
}

// Whatever the order in which pods need and release images, and writes and pulls fail and complete:
// a pull begins when its intent is on the disk, there are few intents, and in the end every image
// is pulled that a pod waits for.
func TestIntentsOfAnyPulls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parallel := rapid.IntRange(0, 3).Draw(t, "parallel")
		p := newPuller(parallel)
		image := func(t *rapid.T) (pod, ref string) {
			return fmt.Sprint("pod-", rapid.IntRange(0, 2).Draw(t, "pod")),
				fmt.Sprint("i", rapid.IntRange(0, 99).Draw(t, "ref"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"need": func(t *rapid.T) {
				for range rapid.IntRange(1, 30).Draw(t, "images") {
					p.need(image(t))
				}
			},
			"release": func(t *rapid.T) {
				pod, ref := image(t)
				before := p.store.Head()
				p.store.Release(pod, ref)
				for _, name := range p.store.Advanced(before) {
					p.queue = append(p.queue, Key(name))
				}
				p.queue = append(p.queue, Key(ref), pullrecord.Owner)
				p.plan()
			},
			"end": func(t *rapid.T) {
				if len(p.issued) == 0 {
					t.Skip("nothing to end")
				}
				var err *world.Error
				if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
					err = world.Errorf(world.KindInternal, "", "broken")
				}
				p.complete(rapid.IntRange(0, len(p.issued)-1).Draw(t, "which"), err)
			},
			"wait": func(t *rapid.T) {
				p.now = p.now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "s")) * time.Second)
				p.plan()
			},
			"": func(t *rapid.T) {
				if len(p.early) > 0 {
					t.Fatalf("%s is pulled before its intent is on the disk", p.early[0])
				}
				if far := p.farIntent(); far != "" {
					t.Fatalf("%s has an intent, and waits far from the front", far)
				}
			},
		})
		for range 500 {
			for len(p.issued) > 0 {
				p.complete(0, nil)
			}
			p.now = p.now.Add(2 * time.Second)
			p.plan()
		}
		if len(p.store.Images) > 0 || len(p.store.PullQueue.Waiting) > 0 {
			t.Fatalf("%d images are awaited, %d in the queue", len(p.store.Images),
				len(p.store.PullQueue.Waiting))
		}
	})
}

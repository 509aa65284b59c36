package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// contentTale is a story of one volume that holds a ConfigMap and a token.
type contentTale struct {
	*story
	disk map[string]string
}

const volumeAt = podsDir + "/u1/volumes/kubernetes.io~projected/v"

// write is the volume being written as a whole.
func (s *contentTale) write(files map[string]string) {
	clear(s.disk)
	for name, text := range files {
		s.disk[volumeAt+"/"+name] = text
	}
	s.path(truth.PathWritten, volumeAt, "")
}

// store is the ConfigMap being written, or removed.
func (s *contentTale) store(data map[string]string) {
	f := truth.Fact{Write: &truth.Write{Resource: api.ResourceConfigMaps, Namespace: "ns", Name: "c"}}
	kind := truth.ObjectRemoved
	if data != nil {
		kind, f.Write.After.ConfigMap = truth.ObjectWritten, &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}, Data: data}
	}
	s.fact(kind, f)
}

func (s *contentTale) token(life time.Duration) {
	s.fact(truth.TokenMade, truth.Fact{Token: "t", Expires: s.now.Add(life)})
	s.write(map[string]string{"version": "1", "copy": "1", "token": "t"})
}

var (
	one = map[string]string{"version": "1", "copy": "1"}
	two = map[string]string{"version": "2", "copy": "2"}
)

// volumeOf begins a story with the pod wanted, its ConfigMap stored and a sandbox.
func volumeOf(s *story, optional bool) (*contentTale, string) {
	tale := &contentTale{s, map[string]string{}}
	s.Panel = NewPanel(Options{PodsDir: podsDir, LogsDir: logsDir,
		Read: func(path string) ([]byte, bool) {
			text, is := tale.disk[path]
			return []byte(text), is
		}})
	pod := spec("u1", always, "app")
	pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{Optional: &optional,
				LocalObjectReference: v1.LocalObjectReference{Name: "c"}}},
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}}}}}}
	s.AgentStarted(s.now)
	s.want(pod)
	tale.store(one)
	return tale, s.sandbox("u1", 0)
}

// A volume holds one version of its object, and later ones only.
func TestContent(t *testing.T) {
	judge(t, []tale{
		{"one after the other", "", func(s *story) {
			v, _ := volumeOf(s, false)
			v.write(one)
			v.store(two)
			v.write(one) // it need not be quick
			v.write(two)
			v.store(nil)
			v.write(two)
			v.store(one)
			v.write(one)
		}},
		{"parts of two", "content", func(s *story) {
			v, _ := volumeOf(s, false)
			v.store(two)
			v.write(map[string]string{"version": "2", "copy": "1"})
		}},
		{"one that is not known yet", "content", func(s *story) {
			v, _ := volumeOf(s, false)
			v.write(two)
		}},
		{"an older one", "content", func(s *story) {
			v, _ := volumeOf(s, false)
			v.store(two)
			v.write(two)
			v.write(one)
		}},
		{"nothing", "content", func(s *story) {
			v, _ := volumeOf(s, false)
			v.write(one)
			v.store(nil)
			v.write(nil)
		}},
		{"nothing, of what may be missing", "", func(s *story) {
			v, _ := volumeOf(s, true)
			v.write(one)
			v.store(nil)
			v.write(nil)
		}},
	})
}

// Its token can be renewed.
func TestToken(t *testing.T) {
	judge(t, []tale{
		{"a token that is good", "", func(s *story) {
			v, sandbox := volumeOf(s, false)
			v.token(10 * time.Minute)
			s.start(sandbox, "app", 0)
			s.wait(500)
			s.Answer(s.now, nil)
		}},
		{"a token that has run out", "content", func(s *story) {
			v, sandbox := volumeOf(s, false)
			v.token(10 * time.Minute)
			s.start(sandbox, "app", 0)
			s.wait(600)
			s.Answer(s.now, nil)
		}},
		{"a token that nobody uses", "", func(s *story) {
			v, _ := volumeOf(s, false)
			v.token(10 * time.Minute)
			s.wait(600)
			s.Answer(s.now, nil)
		}},
		{"an agent that has just come back", "", func(s *story) {
			v, sandbox := volumeOf(s, false)
			v.token(10 * time.Minute)
			s.start(sandbox, "app", 0)
			s.wait(500)
			s.AgentKilled(s.now)
			s.wait(20)
			s.AgentStarted(s.now)
			s.Answer(s.now, nil)
		}},
	})
}

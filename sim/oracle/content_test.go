package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// A volume holds one version of its object, and later ones only; its token can be renewed.
func TestContent(t *testing.T) {
	const at = podsDir + "/u1/volumes/kubernetes.io~projected/v"
	disk := map[string]string{}
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "c"}
	write := func(s *story, files map[string]string) {
		clear(disk)
		for name, text := range files {
			disk[at+"/"+name] = text
		}
		s.path(truth.PathWritten, at, "")
	}
	store := func(s *story, data map[string]string) {
		f := truth.Fact{Write: &truth.Write{Resource: api.ResourceConfigMaps, Namespace: "ns", Name: "c"}}
		kind := truth.ObjectRemoved
		if data != nil {
			kind, f.Write.After.ConfigMap = truth.ObjectWritten, &v1.ConfigMap{ObjectMeta: meta, Data: data}
		}
		s.fact(kind, f)
	}
	one := map[string]string{"version": "1", "copy": "1"}
	two := map[string]string{"version": "2", "copy": "2"}
	begin := func(s *story, optional bool) string {
		s.Panel = NewPanel(Options{PodsDir: podsDir, LogsDir: logsDir,
			Read: func(path string) ([]byte, bool) {
				text, is := disk[path]
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
		store(s, one)
		return s.sandbox("u1", 0)
	}
	token := func(s *story, life time.Duration) {
		s.fact(truth.TokenMade, truth.Fact{Token: "t", Expires: s.now.Add(life)})
		write(s, map[string]string{"version": "1", "copy": "1", "token": "t"})
	}
	judge(t, []tale{
		{"one after the other", "", func(s *story) {
			begin(s, false)
			write(s, one)
			store(s, two)
			write(s, one) // it need not be quick
			write(s, two)
			store(s, nil)
			write(s, two)
			store(s, one)
			write(s, one)
		}},
		{"parts of two", "content", func(s *story) {
			begin(s, false)
			store(s, two)
			write(s, map[string]string{"version": "2", "copy": "1"})
		}},
		{"one that is not known yet", "content", func(s *story) {
			begin(s, false)
			write(s, two)
		}},
		{"an older one", "content", func(s *story) {
			begin(s, false)
			store(s, two)
			write(s, two)
			write(s, one)
		}},
		{"nothing", "content", func(s *story) {
			begin(s, false)
			write(s, one)
			store(s, nil)
			write(s, nil)
		}},
		{"nothing, of what may be missing", "", func(s *story) {
			begin(s, true)
			write(s, one)
			store(s, nil)
			write(s, nil)
		}},
		{"a token that is good", "", func(s *story) {
			sandbox := begin(s, false)
			token(s, 10*time.Minute)
			s.start(sandbox, "app", 0)
			s.wait(500)
			s.Answer(s.now, nil)
		}},
		{"a token that has run out", "content", func(s *story) {
			sandbox := begin(s, false)
			token(s, 10*time.Minute)
			s.start(sandbox, "app", 0)
			s.wait(600)
			s.Answer(s.now, nil)
		}},
		{"a token that nobody uses", "", func(s *story) {
			begin(s, false)
			token(s, 10*time.Minute)
			s.wait(600)
			s.Answer(s.now, nil)
		}},
		{"an agent that has just come back", "", func(s *story) {
			sandbox := begin(s, false)
			token(s, 10*time.Minute)
			s.start(sandbox, "app", 0)
			s.wait(500)
			s.AgentKilled(s.now)
			s.wait(20)
			s.AgentStarted(s.now)
			s.Answer(s.now, nil)
		}},
	})
}

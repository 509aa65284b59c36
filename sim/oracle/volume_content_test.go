package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// volumeScript is a script about one volume that holds a ConfigMap and a token.
type volumeScript struct {
	*script
	disk map[string]string
}

const projectedPath = podsDir + "/u1/volumes/kubernetes.io~projected/v"

// writeVolume replaces the content of the volume.
func (s *volumeScript) writeVolume(files map[string]string) {
	clear(s.disk)
	for name, text := range files {
		s.disk[projectedPath+"/"+name] = text
	}
	s.changePath(truth.PathWritten, projectedPath, "")
}

// storeConfigMap writes the ConfigMap, or deletes it if there is no data.
func (s *volumeScript) storeConfigMap(data map[string]string) {
	f := truth.Fact{Write: &truth.Write{Resource: api.ResourceConfigMaps, Namespace: "ns", Name: "c"}}
	kind := truth.ObjectDeleted
	if data != nil {
		kind, f.Write.After.ConfigMap = truth.ObjectUpdated, &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}, Data: data}
	}
	s.addFact(kind, f)
}

func (s *volumeScript) writeToken(life time.Duration) {
	s.addFact(truth.TokenIssued, truth.Fact{Token: "t", Expires: s.now.Add(life)})
	s.writeVolume(map[string]string{"version": "1", "copy": "1", "token": "t"})
}

var (
	one = map[string]string{"version": "1", "copy": "1"}
	two = map[string]string{"version": "2", "copy": "2"}
)

// startVolumePod makes a pod desired whose ConfigMap exists, with a sandbox.
func startVolumePod(s *script, optional bool) (*volumeScript, string) {
	script := &volumeScript{s, map[string]string{}}
	s.Set = NewSet(Options{PodsDir: podsDir, LogsDir: logsDir,
		ReadFile: func(path string) ([]byte, bool) {
			text, ok := script.disk[path]
			return []byte(text), ok
		}})
	pod := spec("u1", always, "app")
	pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{Optional: &optional,
				LocalObjectReference: v1.LocalObjectReference{Name: "c"}}},
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}}}}}}
	mountAll(pod)
	s.AgentStarted(s.now)
	s.setDesired(pod)
	script.storeConfigMap(one)
	return script, s.sandbox("u1", 0)
}

// A volume holds one version of its object, and never an older one than before.
func TestVolumeContent(t *testing.T) {
	runCases(t, []testCase{
		{"one after the other", "", func(s *script) {
			v, _ := startVolumePod(s, false)
			v.writeVolume(one)
			v.storeConfigMap(two)
			v.writeVolume(one) // it need not be quick
			v.writeVolume(two)
			v.storeConfigMap(nil)
			v.writeVolume(two)
			v.storeConfigMap(one)
			v.writeVolume(one)
		}},
		{"parts of two versions", "volume-content", func(s *script) {
			v, _ := startVolumePod(s, false)
			v.storeConfigMap(two)
			v.writeVolume(map[string]string{"version": "2", "copy": "1"})
		}},
		{"a version that does not exist yet", "volume-content", func(s *script) {
			v, _ := startVolumePod(s, false)
			v.writeVolume(two)
		}},
		{"an older version", "volume-content", func(s *script) {
			v, _ := startVolumePod(s, false)
			v.storeConfigMap(two)
			v.writeVolume(two)
			v.writeVolume(one)
		}},
		{"no version", "volume-content", func(s *script) {
			v, _ := startVolumePod(s, false)
			v.writeVolume(one)
			v.storeConfigMap(nil)
			v.writeVolume(nil)
		}},
		{"no version, optional", "", func(s *script) {
			v, _ := startVolumePod(s, true)
			v.writeVolume(one)
			v.storeConfigMap(nil)
			v.writeVolume(nil)
		}},
	})
}

// An expired token that could have been renewed is a violation.
func TestVolumeToken(t *testing.T) {
	runCases(t, []testCase{
		{"a valid token", "", func(s *script) {
			v, sandbox := startVolumePod(s, false)
			v.writeToken(10 * time.Minute)
			s.start(sandbox, "app", 0)
			s.wait(500)
			s.CheckServed(s.now, nil)
		}},
		{"an expired token", "volume-content", func(s *script) {
			v, sandbox := startVolumePod(s, false)
			v.writeToken(10 * time.Minute)
			s.start(sandbox, "app", 0)
			s.wait(600)
			s.CheckServed(s.now, nil)
		}},
		{"an expired token, nothing runs", "", func(s *script) {
			v, _ := startVolumePod(s, false)
			v.writeToken(10 * time.Minute)
			s.wait(600)
			s.CheckServed(s.now, nil)
		}},
		{"an expired token, the agent just started", "", func(s *script) {
			v, sandbox := startVolumePod(s, false)
			v.writeToken(10 * time.Minute)
			s.start(sandbox, "app", 0)
			s.wait(500)
			s.AgentKilled(s.now)
			s.wait(20)
			s.AgentStarted(s.now)
			s.CheckServed(s.now, nil)
		}},
	})
}

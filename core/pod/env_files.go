package pod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/world"
)

// The files in volumes that environment variables are taken from (fileKeyRef, KEP-3721). Another
// container of the pod writes them, and may change them at any time, so they are read for each run
// of a container shortly before it is created.

// EnvFiles are the files that the variables of a container are taken from, as far as they have been
// read for its next run.
type EnvFiles struct {
	Container string              `json:"container"`
	Files     []criconfig.EnvFile `json:"files,omitempty"`
	ReadAt    time.Time           `json:"readAt"` // the last one
	// Reading is the file that the pod's operation Op reads; nil if it reads none.
	Reading *criconfig.EnvFileKey `json:"reading,omitempty"`
}

// envFilesPeriod is how long the files of a container count after the last of them was read. An
// earlier one is older by the time that the later ones took. If a container cannot be created with
// them, they are read again then; the kubelet retries as often (backOffPeriod).
const envFilesPeriod = 10 * time.Second

const subjectEnvFile = storageSubject + "env/" // followed by the container

// readEnvFiles reads the next file that a container's variables are taken from, and reports whether
// it has issued an operation. Files that have been read too long ago are read again.
func (p *Pod) readEnvFiles(container *v1.Container, env *Env) bool {
	keys := criconfig.EnvFileKeys(container)
	if len(keys) == 0 || env.Node.NoEnvFiles {
		return false
	}
	read := p.envFilesOf(container.Name)
	if read == nil {
		p.EnvFiles = append(p.EnvFiles, EnvFiles{Container: container.Name})
		read = &p.EnvFiles[len(p.EnvFiles)-1]
	}
	if !env.Effects.Now().Before(read.ReadAt.Add(envFilesPeriod)) {
		read.Files = nil
	}
	if len(keys) > budget.EnvFilesMax {
		return false // the container is misconfigured
	}
	for _, key := range keys {
		root, err := p.criPod(env).VolumePath(key)
		isSame := func(f criconfig.EnvFile) bool { return f.EnvFileKey == key }
		if err != nil || slices.ContainsFunc(read.Files, isSame) {
			continue
		}
		read.Reading = &key
		p.Op = env.Effects.IssueAt(p.hostPath(key.Volume, key.Path, env), p.Key(),
			subjectEnvFile+container.Name, fsTimeout, &world.ReadInVolume{Root: root, Path: key.Path,
				BytesMax: criconfig.EnvFileBytesMax})
		return true
	}
	return false
}

// handleEnvFileRead handles the completion of the read of a file. A file that cannot be read is no
// failure of the pod: an app container may write the file that another one waits for.
func (p *Pod) handleEnvFileRead(name string, ev world.Event, env *Env) {
	read := p.envFilesOf(name)
	if read == nil || read.Reading == nil {
		return
	}
	key := *read.Reading
	read.Reading, read.ReadAt = nil, ev.Time
	container, file := p.specContainer(name), criconfig.UnreadableEnvFile(key)
	switch body, ok := ev.Body.(*world.FilesRead); {
	case ev.Err != nil:
		env.Effects.Log(world.LevelInfo, "Failed to read a file of environment variables", "pod",
			p.FullName(), "container", name, "err", ev.Err.Error())
	case ok && len(body.Files) == 1 && container != nil:
		file = criconfig.ParseEnvFile(key, container, body.Files[0].Data)
	}
	if p.envFileBytes()+bytesOf(file.Env) > budget.EnvFileBytesMax {
		file = criconfig.EnvFile{EnvFileKey: key, OverBudget: true}
	}
	read.Files = append(read.Files, file)
}

// envFileBytes returns the length of all names and values of files that the pod keeps.
func (p *Pod) envFileBytes() int {
	sum := 0
	for i := range p.EnvFiles {
		for k := range p.EnvFiles[i].Files {
			sum += bytesOf(p.EnvFiles[i].Files[k].Env)
		}
	}
	return sum
}

func bytesOf(env []v1.EnvVar) int {
	sum := 0
	for i := range env {
		sum += len(env[i].Name) + len(env[i].Value)
	}
	return sum
}

func (p *Pod) envFilesOf(container string) *EnvFiles {
	for i := range p.EnvFiles {
		if p.EnvFiles[i].Container == container {
			return &p.EnvFiles[i]
		}
	}
	return nil
}

// envFilesByContainer returns the files as package criconfig needs them.
func (p *Pod) envFilesByContainer() map[string][]criconfig.EnvFile {
	if len(p.EnvFiles) == 0 {
		return nil
	}
	files := map[string][]criconfig.EnvFile{}
	for i := range p.EnvFiles {
		files[p.EnvFiles[i].Container] = p.EnvFiles[i].Files
	}
	return files
}

// envFilesExpireAt returns when the files of a container are read again; zero if it has none.
func (p *Pod) envFilesExpireAt(container string) time.Time {
	if read := p.envFilesOf(container); read != nil && !read.ReadAt.IsZero() {
		return read.ReadAt.Add(envFilesPeriod)
	}
	return time.Time{}
}

// forgetEnvFiles forgets the files of a container that has been created, or could not be.
func (p *Pod) forgetEnvFiles(container string) {
	p.EnvFiles = slices.DeleteFunc(p.EnvFiles, func(f EnvFiles) bool {
		return f.Container == container
	})
}

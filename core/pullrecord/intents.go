package pullrecord

import (
	"maps"
	"slices"
	"strings"
	"time"

	"seedlet.dev/core/imagename"
)

// Which image an intent is for. A file is named for the reference as a pod has written it, and its
// content says the reference. An intent counts for the image under all of its names. Of a damaged
// file the name is known only: it is compared with those of all spellings of an image that pods
// need, or that the runtime lists.

// putIntent keeps an intent to pull a reference; empty: the file is damaged.
func (s *Store) putIntent(file, ref string, i *Intent) {
	s.dropIntent(file)
	put(&s.Intents, file, i)
	if i.BeganAt.IsZero() {
		s.Earlier++
	}
	if i.Image, i.FullName = ref, ""; ref == "" {
		s.Damaged++
		return
	}
	i.FullName = imagename.Split(ref).Full()
	files := s.IntentsOf[i.FullName]
	at, _ := slices.BinarySearch(files, file)
	put(&s.IntentsOf, i.FullName, slices.Insert(files, at, file))
}

// foundLate notes that the file of an intent is on the disk, and that its directory could not be
// read when this agent intended the pull: an earlier one may have intended it before.
func (s *Store) foundLate(i *Intent, now time.Time) {
	if !i.BeganAt.IsZero() {
		s.Earlier++
	}
	i.BeganAt, i.UnknownSince = time.Time{}, now
	if i.IsGone {
		i.IsGone, i.Saved = false, i.Changes
	}
}

// dropIntent forgets an intent, if there is one.
func (s *Store) dropIntent(file string) {
	i := s.Intents[file]
	if i == nil {
		return
	}
	delete(s.Intents, file)
	if i.BeganAt.IsZero() {
		s.Earlier--
	}
	if i.Image == "" {
		s.Damaged--
		return
	}
	files := s.IntentsOf[i.FullName]
	at, _ := slices.BinarySearch(files, file)
	if files = slices.Delete(files, at, at+1); len(files) == 0 {
		delete(s.IntentsOf, i.FullName)
		return
	}
	s.IntentsOf[i.FullName] = files
}

// mayBePulled reports whether an image may have come from a pull whose result is not recorded,
// under whatever name.
func (s *Store) mayBePulled(ref, id string, names []string) bool {
	s.recoverImage(ref, names)
	full := imagename.Split(ref).Full()
	isPulled := func(name string) bool {
		return slices.ContainsFunc(s.IntentsOf[name], func(file string) bool {
			return s.mayBring(s.Intents[file], id)
		})
	}
	return isPulled(full) || slices.ContainsFunc(names, isPulled)
}

// mayBring reports whether an image may come from the pull of an intent: it was not on the node
// before.
func (s *Store) mayBring(i *Intent, id string) bool {
	seen, isSeen := s.Seen[id]
	return i.BeganAt.IsZero() || !isSeen || !seen.First.Before(i.BeganAt)
}

// recoverListed finds the images of damaged intents among those of the runtime.
func (s *Store) recoverListed(images map[string][]string) {
	for _, id := range slices.Sorted(maps.Keys(images)) {
		s.recoverImage("", images[id])
	}
}

// recoverImage finds out whether damaged intents are for an image.
func (s *Store) recoverImage(ref string, names []string) {
	if s.Damaged == 0 {
		return
	}
	for _, spelling := range spellings(append([]string{ref}, names...)) {
		file := fileName(spelling)
		if i := s.Intents[file]; i != nil && i.Image == "" {
			s.putIntent(file, spelling, i)
		}
	}
}

// spellings returns references, and the shorter ones that pods may write for the same images.
func spellings(refs []string) []string {
	var all []string
	for _, ref := range imagename.WithFullNames(refs) {
		all = append(all, ref)
		if short, isShorter := strings.CutPrefix(ref, "docker.io/"); isShorter {
			all = append(all, short)
			if short, isOfficial := strings.CutPrefix(short, "library/"); isOfficial {
				all = append(all, short, "docker.io/"+short)
			}
		}
	}
	for _, ref := range all {
		if short, isLatest := strings.CutSuffix(ref, ":latest"); isLatest {
			all = append(all, short)
		}
	}
	return all
}

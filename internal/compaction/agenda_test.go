package compaction

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/test/chatmodel"
)

func TestCallersHaveTurns(t *testing.T) {
	a := newAgenda(3)
	of := func(who string, n int) subject { return subject{scope(t, who), fmt.Sprint(who, n)} }
	for i := range 5 {
		a.add(of("ann", i))
	}
	a.add(of("bob", 0))
	a.add(of("cy", 0))
	var order []string
	for {
		j, ok := a.next()
		if !ok {
			break
		}
		order = append(order, j.conversation)
		if len(order) == 4 { // ann has the two workers that one may have
			if _, ok := a.next(); ok {
				t.Error("a third one of ann's is worked on")
			}
			a.done(of("ann", 0))
		}
	}
	if got, want := strings.Join(order, " "), "ann0 bob0 cy0 ann1 ann2"; got != want {
		t.Errorf("the order is %s, want %s", got, want)
	}
	for _, j := range []subject{of("ann", 1), of("ann", 2), of("bob", 0), of("cy", 0)} {
		a.done(j)
	}
	for i := 3; i < 5; i++ {
		j, ok := a.next()
		if !ok || j != of("ann", i) {
			t.Errorf("next is %v, %t", j, ok)
		}
		a.done(j)
	}
	if len(a.lanes)+len(a.turns)+a.waiting != 0 {
		t.Errorf("at the end there are %d lanes, %d turns, %d waiting", len(a.lanes), len(a.turns), a.waiting)
	}
}

func TestWhoHasMostWaitingGivesWay(t *testing.T) {
	a := newAgenda(2)
	of := func(who string, n int) subject { return subject{scope(t, who), fmt.Sprint(n)} }
	for i := range maxWaiting {
		if _, full := a.add(of("ann", i)); full {
			t.Fatalf("it is full with %d", i)
		}
	}
	for i := range maxWaiting / 2 {
		if dropped, full := a.add(of("bob", i)); !full || dropped != of("ann", maxWaiting-1-i) {
			t.Fatalf("for bob's number %d gives way %v, %t", i, dropped, full)
		}
	}
	for _, who := range []string{"ann", "bob"} { // as many of each, now
		if dropped, full := a.add(of(who, 5000)); !full || dropped != of(who, 5000) {
			t.Errorf("for %s's next gives way %v, %t", who, dropped, full)
		}
	}
	if a.waiting != maxWaiting || len(a.turns) != 2 {
		t.Errorf("%d wait in %d lanes", a.waiting, len(a.turns))
	}
}

func TestAcquaintancesAreBounded(t *testing.T) {
	a := newAcquaintance()
	of := func(n int) subject { return subject{scope(t, "ann"), fmt.Sprint(n)} }
	first, most := of(0), 0
	for i := range 3 * maxMet {
		if a.meet(of(i)) {
			t.Fatalf("number %d was met", i)
		}
		if !a.meet(of(i)) {
			t.Fatalf("number %d is forgotten at once", i)
		}
		if i < maxMet/2 && !a.meet(first) {
			t.Fatalf("the first is forgotten after %d", i)
		}
		most = max(most, len(a.now)+len(a.old))
	}
	if most > maxMet {
		t.Errorf("%d are kept, want at most %d", most, maxMet)
	}
}

// Whoever keeps a model busy keeps no other caller from it.
func TestABusyCallerLeavesAWorker(t *testing.T) {
	asked := make(chan struct{}, 16)
	m := chatmodel.New(t, func(w http.ResponseWriter, c chatmodel.Chat) {
		if strings.Contains(c.Said, "endless") {
			asked <- struct{}{}
			<-c.Request.Context().Done()
			return
		}
		chatmodel.Says(w, "short")
	})
	b := newBench(t, m.URL, nil)
	for i := range 4 {
		name := fmt.Sprint("c", i)
		for range 3 {
			_, err := b.st.Log(scope(t, "ann"), name).Append(t.Context(), history.Batch{Messages: []history.Message{person(long("an endless matter")), assistant("yes")}, Fold: b.c})
			if err != nil {
				t.Fatal(err)
			}
		}
		b.s.Wake(scope(t, "ann"), name)
	}
	<-asked
	<-asked
	b.foldOnce("bob")
	b.s.Wake(scope(t, "bob"), "default")
	waitFor(t, func() bool { return b.state("bob").Prose != nil })
	if n := len(asked); n != 0 {
		t.Errorf("%d more of ann's are worked on, want two at a time", n)
	}
}

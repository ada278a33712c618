// The node's calls one by one; what they must never do together is the simulator's business.
#include <gtest/gtest.h>

#include "node/test_world.h"

namespace tiercel {
namespace {

std::vector<EventKind> kinds(const Events& events) {
  std::vector<EventKind> out;
  for (const Event& event : events.events) out.push_back(event.kind);
  return out;
}

TEST(Offer, WriteThroughWantsWhatIsNotThereAtComputed) {
  TestWorld world({.spec = test_spec({.window_pages = 2, .state = true})});
  const auto keys = world.keys(6);
  OfferRequest offer{world.session(), world.ns(), RequestId(1), keys};
  const auto wanted = world.node().offer(offer);
  const Presence full = 1, window = 2, state = 4;
  EXPECT_EQ(wanted, (std::vector<Presence>{full, full, full, full, full | window, full | window | state}))
      << "windows and snapshot of the resume point at the end";
  world.store(keys, 0, ClassId(0));
  EXPECT_EQ(world.node().offer(offer)[0], Presence{0});
  const std::vector<std::uint64_t> points{3};
  offer.points = points;
  EXPECT_EQ(world.node().offer(offer)[2], full | window | state);
  EXPECT_EQ(world.node().offer(offer)[5], full);
  offer.event = OfferEvent::kLeaving;
  EXPECT_EQ(world.node().offer(offer)[2], Presence{0});
}

TEST(Offer, SelectiveWaitsForTheSecondRequestAndSaysSo) {
  TestWorld world({.spec = test_spec({}), .adjust = [](NodeOptions& options) {
                     options.write_policy = WritePolicy::kWriteThroughSelective;
                   }});
  const auto keys = world.keys(2);
  const auto offered = [&](RequestId request) {
    world.match(keys, request);
    return world.node().offer({world.session(), world.ns(), request, keys}).at(0);
  };
  EXPECT_EQ(offered(RequestId(1)), Presence{0});
  EXPECT_EQ(offered(RequestId(1)), Presence{0}) << "the same request twice is one";
  EXPECT_EQ(world.view(world.match(keys, RequestId(1))).missed.at(0).reason, Reason::kSecondTouch);
  EXPECT_EQ(offered(RequestId(2)), Presence{1});
}

TEST(Offer, WriteBackWaitsUntilThePageLeaves) {
  TestWorld world({.spec = test_spec({}),
                   .adjust = [](NodeOptions& options) { options.write_policy = WritePolicy::kWriteBack; }});
  const auto keys = world.keys(1);
  OfferRequest offer{world.session(), world.ns(), RequestId(1), keys};
  EXPECT_EQ(world.node().offer(offer).at(0), Presence{0});
  offer.event = OfferEvent::kLeaving;
  EXPECT_EQ(world.node().offer(offer).at(0), Presence{1});
}

TEST(Pin, APinnedPageStaysAndItsTimeEnds) {
  TestWorld world({.spec = test_spec({}), .pages_max = 2});
  const auto pinned = world.keys(1, 1);
  world.store_pages(pinned, {});
  world.node().pin(world.ns(), pinned, std::chrono::seconds(5));
  EXPECT_EQ(world.node().stats().pinned_pages, 1U);
  world.store_pages(world.keys(1, 2), {});
  world.store_pages(world.keys(1, 3), {});
  EXPECT_TRUE(world.node().exists(world.ns(), ClassId(0), pinned[0]));
  world.clock().advance(std::chrono::seconds(5));
  world.node().poll();
  EXPECT_EQ(world.node().stats().pinned_pages, 0U);
  world.store_pages(world.keys(2, 4), {});
  EXPECT_FALSE(world.node().exists(world.ns(), ClassId(0), pinned[0]));
}

TEST(WeightsEpoch, OlderIdentitiesMissAndAreRefused) {
  TestWorld world({.spec = test_spec({})});
  const auto keys = world.keys(2);
  world.store_pages(keys, {});
  EXPECT_TRUE(world.node().set_weights_epoch(world.form_id(), 1).ok());
  EXPECT_EQ(world.view(world.match(keys)).length, 0U);
  EXPECT_EQ(world.view(world.match(keys)).missed.at(0).reason, Reason::kRemoved);
  EXPECT_EQ(world.store(keys, 0, ClassId(0)).at(0), StoreOutcome::kStale);
}

TEST(WeightsEpoch, AStoreUnderWayNeverPublishes) {
  HeldExecutor executor;
  TestWorld world({.spec = test_spec({}), .executor = &executor});
  const auto keys = world.keys(1);
  ASSERT_EQ(world.store(keys, 0, ClassId(0)).at(0), StoreOutcome::kAccepted);
  EXPECT_TRUE(world.node().clear(world.ns()).ok());
  executor.run_all();
  world.node().poll();
  EXPECT_EQ(world.view(world.match(keys)).length, 0U);
  EXPECT_EQ(world.node().stats().payload_bytes, 0U);
}

TEST(Attach, IsLostWhenItsPageWasReplaced) {
  HeldExecutor executor;
  TestWorld world({.spec = test_spec({.state = true}), .executor = &executor});
  const auto keys = world.keys(1);
  const auto settle = [&] {
    executor.run_all();
    world.node().poll();
  };
  world.store(keys, 0, ClassId(0));
  settle();
  world.node().drain_completions();
  const auto attach = world.node().store(world.store_request(keys, 0, ClassId(1))).value();
  EXPECT_TRUE(world.node().remove(world.ns(), {&keys[0], 1}).ok());
  world.store(keys, 0, ClassId(0));  // another life of the page
  settle();
  EXPECT_TRUE(world.node().exists(world.ns(), ClassId(0), keys[0]));
  EXPECT_FALSE(world.node().exists(world.ns(), ClassId(1), keys[0]));
  StoreOutcome told = StoreOutcome::kAccepted;
  for (const Completion& completion : world.node().drain_completions())
    if (completion.operation == attach.operation && completion.kind == CompletionKind::kVisible)
      told = completion.store.at(0);
  EXPECT_EQ(told, StoreOutcome::kStale);
}

TEST(Reservation, WrittenInPlaceSealedAndCommitted) {
  TestWorld world({.spec = test_spec({})});
  const auto keys = world.keys(1);
  const auto reserved = world.node().reserve(world.store_request(keys, 0, ClassId(0))).value();
  EXPECT_EQ(world.view(world.match(keys)).missed.at(0).reason, Reason::kInFlight);
  const auto spans = world.node().reserved_spans(reserved.reservation, 0);
  const ClassForm& cls = world.form().classes[0];
  for (std::uint64_t i = 0; i < cls.record_bytes; ++i)
    world.arena().view(spans, header_bytes(cls) + i, 1)[0] =
        TestWorld::content(keys[0], ClassId(0), ShardId(0), i);
  ASSERT_TRUE(world.node().commit(reserved.reservation));
  world.node().poll();
  EXPECT_EQ(world.load(world.match(keys), 1).length, 1U);
  EXPECT_EQ(world.wrong_bytes(keys, 1), "");
}

TEST(Reservation, PastItsDeadlineItIsQuarantinedUntilItIsGivenBack) {
  TestWorld world({.spec = test_spec({})});
  const auto keys = world.keys(1);
  const auto reserved = world.node().reserve(world.store_request(keys, 0, ClassId(0))).value();
  world.clock().advance(std::chrono::seconds(31));
  world.node().poll();
  EXPECT_GT(world.node().stats().quarantined_bytes, 0U);
  EXPECT_GT(world.node().stats().payload_bytes, 0U) << "a live process may still write there";
  const auto late = world.node().commit(reserved.reservation);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(world.node().stats().quarantined_bytes, 0U);
  EXPECT_EQ(world.node().stats().payload_bytes, 0U);
  EXPECT_EQ(world.node().stats().reserved_bytes, 0U);
}

TEST(Reservation, AnUnfinishedPageIsForgottenAtItsDeadline) {
  TestWorld world({.spec = test_spec({.index_keys = true})});
  const auto keys = world.keys(1);
  world.store(keys, 0, ClassId(0));
  EXPECT_GT(world.node().stats().payload_bytes, 0U);
  world.clock().advance(std::chrono::seconds(31));
  world.node().poll();
  EXPECT_EQ(world.node().stats().payload_bytes, 0U);
}

TEST(LayeredLoad, EventsComeInOrderAndDamageAfterTheFirstEndsIt) {
  HeldExecutor executor;
  TestWorld world({.spec = test_spec({}), .executor = &executor});
  const auto keys = world.keys(3);
  for (std::uint64_t page = 0; page < 3; ++page) {
    world.store(keys, page, ClassId(0));
    executor.run_all();
    world.node().poll();
  }
  world.node().drain_completions();
  LoadRequest request = world.load_request(world.match(keys), 3);
  request.mode = LoadMode::kLayered;
  const OperationId load = world.node().load(request).value();
  std::vector<std::uint32_t> layers;
  std::optional<LoadResult> result;
  for (int step = 0; step < 32 && !result; ++step) {
    executor.run_all();
    world.node().poll();
    for (Completion& completion : world.node().drain_completions()) {
      if (completion.kind == CompletionKind::kLayerReady) {
        layers.push_back(completion.layer);
        // The last payload byte belongs to the second layer.
        for (const AuditResidence& set : world.node().audit().residences)
          if (set.key == keys[1])
            world.arena().view(set.spans[0], header_bytes(world.form().classes[0]) + set.payload_bytes - 1,
                               1)[0] ^= std::byte{1};
      }
      if (completion.kind == CompletionKind::kLoaded && completion.operation == load)
        result = std::move(completion.load);
    }
  }
  ASSERT_TRUE(result);
  EXPECT_EQ(layers, std::vector<std::uint32_t>{0}) << "no later event fires";
  EXPECT_EQ(result->status.code, Code::kDataCorrupt);
  EXPECT_NE(result->status.message.find("page 1"), std::string::npos) << result->status.message;
  EXPECT_NE(result->status.message.find("full"), std::string::npos) << result->status.message;
}

TEST(AfterEvent, NothingIsReadBeforeTheEnginesEvent) {
  TestWorld world({.spec = test_spec({})});
  const auto keys = world.keys(1);
  StoreRequest request = world.store_request(keys, 0, ClassId(0));
  request.after_event = 42;
  ASSERT_EQ(world.node().store(request).value().outcomes.at(0), StoreOutcome::kAccepted);
  world.node().poll();
  EXPECT_EQ(world.view(world.match(keys)).missed.at(0).reason, Reason::kInFlight);
  world.node().event_done(42);
  world.node().poll();
  EXPECT_EQ(world.view(world.match(keys)).length, 1U);
}

TEST(Suspend, EndsTransfersForgetsMemoryKeepsBytes) {
  HeldExecutor executor;
  TestWorld world({.spec = test_spec({}), .executor = &executor});
  const auto keys = world.keys(2);
  for (std::uint64_t page = 0; page < 2; ++page) {
    world.store(keys, page, ClassId(0));
    executor.run_all();
    world.node().poll();
  }
  world.node().drain_completions();
  const TicketId ticket = world.match(keys);
  ASSERT_TRUE(world.node().load(world.load_request(ticket, 2)));
  world.node().suspend();
  EXPECT_FALSE(world.node().load(world.load_request(ticket, 2)));
  executor.run_all();
  world.node().poll();
  std::vector<CompletionKind> seen;
  for (const Completion& completion : world.node().drain_completions()) seen.push_back(completion.kind);
  EXPECT_EQ(seen, (std::vector<CompletionKind>{CompletionKind::kLoaded, CompletionKind::kSuspended}));
  world.node().resume();
  EXPECT_FALSE(world.node().load(world.load_request(ticket, 2))) << "no memory is registered any more";
  world.register_memory();
  world.wipe();
  ASSERT_TRUE(world.node().load(world.load_request(ticket, 2)));
  for (int i = 0; i < 8; ++i) {
    executor.run_all();
    world.node().poll();
  }
  EXPECT_EQ(world.wrong_bytes(keys, 2), "");
}

TEST(Session, ItsBoundShortensAHitAndTheReasonIsTheCallersLimit) {
  TestWorld world({.spec = test_spec({})});
  const auto keys = world.keys(4);
  world.store_pages(keys, {});
  const std::uint64_t two_pages = 2 * world.form().classes[0].record_bytes;
  const SessionId small = world.node().open_session({"small", "salt", two_pages}).value();
  MatchQuery query;
  query.session = small;
  query.ns = world.ns();
  query.keys = keys;
  const TicketView view = world.view(world.node().match(query).value());
  EXPECT_EQ(view.length, 2U);
  ASSERT_EQ(view.missed.size(), 1U);
  EXPECT_EQ(view.missed[0].reason, Reason::kLimit);
}

TEST(Session, TenantsDoNotShareKeys) {
  TestWorld world({.spec = test_spec({})});
  const SessionId other = world.node().open_session({"other", "another salt", {}}).value();
  ContentIdentity identity;
  identity.model = "test";
  identity.weights = "weights-1";
  identity.dtype = "bf16";
  identity.page_tokens = 16;
  const NamespaceId ns = world.node().open_namespace(other, world.form_id(), {identity, 0, {}}).value();
  EXPECT_NE(world.node().root(ns), world.node().root(world.ns()));
  identity.tenant_salt = "mine";
  EXPECT_FALSE(world.node().open_namespace(other, world.form_id(), {identity, 0, {}}))
      << "never taken from the caller";
}

TEST(OtherIdentity, IsNamedByTheFieldThatDiffers) {
  TestWorld world({.spec = test_spec({})});
  const std::vector<std::uint32_t> tokens(16, 3);
  const Probe probe = probe_from_tokens(tokens);
  const auto first_keys = [&](NamespaceId ns) {
    KeyChain chain = start_chain(world.node().root(ns));
    return extend_chain(chain, 16, std::span<const std::uint32_t>(tokens)).value();
  };
  const auto match = [&](NamespaceId ns, const std::vector<Key>& keys) {
    MatchQuery query;
    query.session = world.session();
    query.ns = ns;
    query.keys = keys;
    query.probe = probe;
    return world.view(world.node().match(query).value());
  };
  const auto keys = first_keys(world.ns());
  match(world.ns(), keys);
  world.store_pages(keys, {});
  const NamespaceId other = world.open("weights-2");
  const TicketView view = match(other, first_keys(other));
  EXPECT_EQ(view.length, 0U);
  EXPECT_EQ(view.missed.at(0).reason, Reason::kOtherIdentity);
  EXPECT_EQ(view.missed.at(0).field, "weights");
}

TEST(Quota, ANamespaceAtItsMaximumEvictsItsOwnAndNeverOthersBelowTheirMinimum) {
  TestWorld world({.spec = test_spec({}), .pages_max = 4});
  const std::uint64_t page = world.form().classes[0].record_bytes;
  ContentIdentity identity;
  identity.model = "test";
  identity.weights = "small";
  identity.dtype = "bf16";
  identity.page_tokens = 16;
  const NamespaceId small =
      world.node().open_namespace(world.session(), world.form_id(), {identity, page, page}).value();
  const auto store_small = [&](std::uint32_t token) {
    KeyChain chain = start_chain(world.node().root(small));
    const std::vector<std::uint32_t> tokens(16, token);
    const auto keys = extend_chain(chain, 16, std::span<const std::uint32_t>(tokens)).value();
    StoreRequest request = world.store_request(keys, 0, ClassId(0));
    request.ns = small;
    EXPECT_EQ(world.node().store(request).value().outcomes.at(0), StoreOutcome::kAccepted);
    world.node().poll();
    return keys;
  };
  const auto first = store_small(1);
  const auto second = store_small(2);
  EXPECT_FALSE(world.node().exists(small, ClassId(0), first[0])) << "its own page went";
  world.store_pages(world.keys(6), {});
  EXPECT_TRUE(world.node().exists(small, ClassId(0), second[0])) << "never below its minimum";
}

TEST(Events, TellWhatBecomesVisibleAndWhatLeaves) {
  TestWorld world({.spec = test_spec({.state = true})});
  const auto keys = world.keys(1);
  world.store(keys, 0, ClassId(0));
  world.store(keys, 0, ClassId(1));
  EXPECT_TRUE(world.node().remove(world.ns(), {&keys[0], 1}).ok());
  EXPECT_TRUE(world.node().clear(world.ns()).ok());
  const Events events = world.node().drain_events();
  EXPECT_EQ(kinds(events), (std::vector<EventKind>{EventKind::kStored, EventKind::kAttached,
                                                   EventKind::kRemoved, EventKind::kCleared}));
  EXPECT_EQ(events.lost, 0U);
}

TEST(Events, CarryTheEnginesOwnDigest) {
  TestWorld world({.spec = test_spec({})});
  StoreRequest request = world.store_request(world.keys(1), 0, ClassId(0));
  request.items[0].external.bytes[0] = std::byte{7};
  request.items[0].external.size = 1;
  ASSERT_TRUE(world.node().store(request));
  world.node().poll();
  const Events events = world.node().drain_events();
  ASSERT_EQ(events.events.size(), 1U);
  EXPECT_EQ(events.events[0].external, request.items[0].external);
  const AuditResidence set = world.node().audit().residences.at(0);
  const auto header =
      parse_header(world.arena().view(set.spans[0], 0, header_bytes(world.form().classes[0])));
  ASSERT_TRUE(header);
  EXPECT_EQ(header->label.external, request.items[0].external);
}

TEST(Session, ItsBoundHoldsForLoadsAtShorterLengthsToo) {
  TestWorld world({.spec = test_spec({.state = true})});
  const auto keys = world.keys(4);
  world.store_pages(keys, {.snapshots = {2, 4}});
  const ClassForm& state = world.form().classes[1];
  const std::uint64_t bound = 4 * world.form().classes[0].record_bytes + state.record_bytes;
  const SessionId small = world.node().open_session({"small", "salt", bound}).value();
  MatchQuery query;
  query.session = small;
  query.ns = world.ns();
  query.keys = keys;
  const TicketId ticket = world.node().match(query).value();
  ASSERT_EQ(world.view(ticket).length, 4U);
  EXPECT_EQ(world.load(ticket, 2).length, 0U) << "the snapshot at 2 would pass the bound";
  EXPECT_LE(world.node().stats().leased_bytes, bound);
  EXPECT_EQ(world.load(ticket, 4).length, 4U);
}

TEST(Session, AnotherTenantsNamespaceIsRefused) {
  TestWorld world({.spec = test_spec({})});
  const auto keys = world.keys(1);
  world.store_pages(keys, {});
  MatchQuery query;
  query.session = world.node().open_session({"stranger", "another salt", {}}).value();
  query.ns = world.ns();
  query.keys = keys;
  EXPECT_FALSE(world.node().match(query));
  StoreRequest request = world.store_request(keys, 0, ClassId(0));
  request.session = query.session;
  EXPECT_FALSE(world.node().store(request));
}

TEST(Chain, ARingOfParentsCannotBeBuilt) {
  TestWorld world({.spec = test_spec({})});
  const auto keys = world.keys(2);
  StoreRequest request = world.store_request(keys, 1, ClassId(0));
  StoreItem back = request.items[0];
  std::swap(back.key, *back.parent);
  request.items.push_back(back);
  EXPECT_EQ(world.node().store(request).value().outcomes,
            (std::vector<StoreOutcome>{StoreOutcome::kAccepted, StoreOutcome::kInvalid}));
  EXPECT_TRUE(world.node().remove(world.ns(), {&keys[0], 1}).ok());
}

TEST(Memory, IsNotUnregisteredUnderALoadThatVerifies) {
  HeldExecutor executor;
  TestWorld world({.spec = test_spec({}), .executor = &executor});
  const auto keys = world.keys(1);
  world.store(keys, 0, ClassId(0));
  executor.run_all();
  world.node().poll();
  world.wipe();
  ASSERT_TRUE(world.node().load(world.load_request(world.match(keys), 1)));
  EXPECT_EQ(world.node().unregister_memory(world.form_id(), ClassId(0), ShardId(0)).code,
            Code::kFailedPrecondition);
  for (int i = 0; i < 4; ++i) {
    executor.run_all();
    world.node().poll();
  }
  EXPECT_EQ(world.wrong_bytes(keys, 1), "");
  EXPECT_TRUE(world.node().unregister_memory(world.form_id(), ClassId(0), ShardId(0)).ok());
}

TEST(Verification, OncePerResidencyStillVerifiesEachLayer) {
  HeldExecutor executor;
  TestWorld world({.spec = test_spec({}), .executor = &executor, .adjust = [](NodeOptions& options) {
                     options.verification = Verification::kOncePerResidency;
                   }});
  const auto keys = world.keys(1);
  world.store(keys, 0, ClassId(0));
  executor.run_all();
  world.node().poll();
  for (const AuditResidence& set : world.node().audit().residences)  // the second layer's last byte
    world.arena().view(set.spans[0], header_bytes(world.form().classes[0]) + set.payload_bytes - 1, 1)[0] ^=
        std::byte{1};
  world.node().drain_completions();
  LoadRequest request = world.load_request(world.match(keys), 1);
  request.mode = LoadMode::kLayered;
  ASSERT_TRUE(world.node().load(request));
  std::optional<LoadResult> result;
  for (int i = 0; i < 16 && !result; ++i) {
    executor.run_all();
    world.node().poll();
    for (Completion& completion : world.node().drain_completions())
      if (completion.kind == CompletionKind::kLoaded) result = std::move(completion.load);
  }
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status.code, Code::kDataCorrupt);
}

TEST(Events, ABoundedQueueCountsWhatItLost) {
  TestWorld world({.spec = test_spec({}), .adjust = [](NodeOptions& options) { options.events_max = 2; }});
  world.store_pages(world.keys(5), {});
  const Events events = world.node().drain_events();
  EXPECT_EQ(events.events.size(), 2U);
  EXPECT_EQ(events.lost, 3U);
  world.store_pages(world.keys(1, 9), {});
  EXPECT_EQ(world.node().drain_events().events.at(0).sequence, 6U) << "the hole shows";
}

TEST(Off, EveryMatchMissesAndEveryStoreIsRefused) {
  TestWorld world({.spec = test_spec({}), .adjust = [](NodeOptions& options) { options.off = true; }});
  const auto keys = world.keys(2);
  EXPECT_EQ(world.view(world.match(keys)).length, 0U);
  EXPECT_FALSE(world.node().store(world.store_request(keys, 0, ClassId(0))));
}

TEST(Options, WhatMakesNoSenseIsRefusedWithASentence) {
  ManualClock clock;
  InlineExecutor executor;
  ByteArena arena(1 << 20);
  HostDevice device(4096);
  const auto refused = [&](NodeOptions options) {
    const auto node = Node::open(options, World{clock, executor, arena, device, 1});
    return node ? std::string() : node.error().message;
  };
  EXPECT_NE(refused({}).find("host_bytes"), std::string::npos);
  EXPECT_NE(refused({.host_bytes = 64 << 20}).find("arena"), std::string::npos);
  EXPECT_NE(refused({.host_bytes = 4096, .extent_bytes = 4096}).find("index"), std::string::npos);
  EXPECT_NE(refused({.host_bytes = 1 << 20, .extent_bytes = 3000}).find("extent_bytes"), std::string::npos);
  EXPECT_NE(refused({.host_bytes = 1 << 20, .client_share = 0}).find("client_share"), std::string::npos);
}

}  // namespace
}  // namespace tiercel

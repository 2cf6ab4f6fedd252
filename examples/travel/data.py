"""Where one can go, in Chinese and English: destinations, how to get there, where to sleep."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Climate:
    """A month as it usually is."""

    low_c: int
    high_c: int
    rain_days: int


@dataclass(frozen=True)
class Hotel:
    """A place to sleep, and what a night costs in yuan; the name is English and Chinese, like those of sights."""

    name: str
    price_cny: int
    quiet: bool


@dataclass(frozen=True)
class Destination:
    """A place to travel to.

    Args:
        name: in English.
        chinese: in Chinese.
        tags: what it is liked for.
        seasons: spring (March to May), summer, autumn, winter.
        attractions: the best first, English and Chinese; two fill a day.
        hotels: the best first.
        hours: train or flight from each origin, in hours.
        fares: return fare from each origin, in yuan.
    """

    name: str
    chinese: str
    tags: tuple[str, ...]
    seasons: tuple[Climate, Climate, Climate, Climate]
    attractions: tuple[str, ...]
    hotels: tuple[Hotel, ...]
    hours: dict[str, float]
    fares: dict[str, int]

    def climate(self, month: int) -> Climate:
        """The climate of a month, 1 to 12."""
        return self.seasons[(month - 3) % 12 // 3]

    def answers_to(self, name: str) -> bool:
        """Whether `name` means this place."""
        return name.strip().lower() in (self.name.lower(), self.chinese)


def in_language_of(word: str, name: str) -> str:
    """The English or Chinese half of a name, whichever language `word` is in."""
    english, _, chinese = name.partition(" | ")
    return english if word.isascii() else chinese


ORIGINS = {"上海": "Shanghai", "北京": "Beijing", "广州": "Guangzhou", "成都": "Chengdu"}

DESTINATIONS = (
    Destination(
        "Wuyuan",
        "婺源",
        ("nature", "quiet", "town", "mountains"),
        (Climate(11, 21, 16), Climate(23, 33, 13), Climate(13, 24, 7), Climate(2, 12, 9)),
        (
            "Likeng village | 李坑",
            "Huangling terraces | 篁岭梯田",
            "Wolong valley | 卧龙谷",
            "Sixi and Yan villages | 思溪延村",
            "Rainbow bridge | 彩虹桥",
        ),
        (
            Hotel("Likeng Courtyard Inn | 李坑小院", 320, quiet=True),
            Hotel("Wuyuan Station Hotel | 婺源车站酒店", 210, quiet=False),
        ),
        {"Shanghai": 3.0, "Beijing": 6.5, "Guangzhou": 7.0, "Chengdu": 9.0},
        {"Shanghai": 480, "Beijing": 1180, "Guangzhou": 960, "Chengdu": 1300},
    ),
    Destination(
        "Wuzhen",
        "乌镇",
        ("quiet", "town", "history", "water"),
        (Climate(11, 20, 12), Climate(24, 32, 13), Climate(15, 23, 8), Climate(2, 9, 9)),
        (
            "West gate water lanes | 西栅水巷",
            "Dye workshop | 宏源泰染坊",
            "Mao Dun's house | 茅盾故居",
            "Night boat | 夜游摇橹船",
            "Water theatre | 水剧场",
        ),
        (
            Hotel("Pillow Water Guesthouse | 枕水民宿", 560, quiet=True),
            Hotel("Wuzhen Town Hotel | 乌镇镇上酒店", 300, quiet=False),
        ),
        {"Shanghai": 1.5, "Beijing": 5.5, "Guangzhou": 7.5, "Chengdu": 10.0},
        {"Shanghai": 140, "Beijing": 1120, "Guangzhou": 1200, "Chengdu": 1450},
    ),
    Destination(
        "Moganshan",
        "莫干山",
        ("nature", "quiet", "mountains"),
        (Climate(9, 18, 14), Climate(21, 28, 15), Climate(12, 20, 9), Climate(0, 7, 10)),
        ("Bamboo forest walk | 竹海步道", "Sword pond | 剑池", "Old villas | 老别墅群", "Tea terraces | 茶园"),
        (Hotel("Bamboo Hill Lodge | 竹山居", 680, quiet=True), Hotel("Yucun Farmhouse | 庾村农家", 260, quiet=True)),
        {"Shanghai": 2.0, "Beijing": 6.0, "Guangzhou": 7.5, "Chengdu": 10.5},
        {"Shanghai": 210, "Beijing": 1150, "Guangzhou": 1250, "Chengdu": 1500},
    ),
    Destination(
        "Dali",
        "大理",
        ("nature", "quiet", "town", "mountains", "water"),
        (Climate(9, 23, 7), Climate(17, 26, 18), Climate(11, 22, 9), Climate(2, 16, 3)),
        (
            "Erhai lake by bicycle | 骑行洱海",
            "Cangshan cable car | 苍山索道",
            "Xizhou village | 喜洲古镇",
            "Three pagodas | 崇圣寺三塔",
            "Shaxi old town | 沙溪古镇",
        ),
        (
            Hotel("Erhai Lakeside House | 洱海湖畔小筑", 430, quiet=True),
            Hotel("Old Town Hostel | 古城青年旅舍", 120, quiet=False),
        ),
        {"Shanghai": 5.5, "Beijing": 6.0, "Guangzhou": 5.0, "Chengdu": 4.5},
        {"Shanghai": 2100, "Beijing": 2300, "Guangzhou": 1500, "Chengdu": 900},
    ),
    Destination(
        "Sanya",
        "三亚",
        ("beach", "water", "nature"),
        (Climate(23, 30, 8), Climate(26, 32, 14), Climate(24, 31, 15), Climate(19, 26, 5)),
        (
            "Yalong bay | 亚龙湾",
            "Wuzhizhou island | 蜈支洲岛",
            "Nanshan temple | 南山寺",
            "Rainforest park | 热带雨林公园",
        ),
        (
            Hotel("Yalong Sands Resort | 亚龙湾沙滩度假村", 980, quiet=True),
            Hotel("Dadonghai Beach Inn | 大东海海滩客栈", 340, quiet=False),
        ),
        {"Shanghai": 4.0, "Beijing": 5.0, "Guangzhou": 2.5, "Chengdu": 3.5},
        {"Shanghai": 1900, "Beijing": 2300, "Guangzhou": 1100, "Chengdu": 1600},
    ),
    Destination(
        "Qingdao",
        "青岛",
        ("beach", "city", "food", "mountains"),
        (Climate(8, 16, 8), Climate(21, 27, 13), Climate(14, 21, 6), Climate(-2, 6, 4)),
        ("Laoshan mountain | 崂山", "Badaguan villas | 八大关", "Beer museum | 啤酒博物馆", "Zhanqiao pier | 栈桥"),
        (
            Hotel("Badaguan Villa Hotel | 八大关别墅酒店", 520, quiet=True),
            Hotel("Harbour Hotel | 海港酒店", 290, quiet=False),
        ),
        {"Shanghai": 6.0, "Beijing": 3.5, "Guangzhou": 4.5, "Chengdu": 4.5},
        {"Shanghai": 1000, "Beijing": 640, "Guangzhou": 1900, "Chengdu": 1800},
    ),
    Destination(
        "Xi'an",
        "西安",
        ("history", "food", "city"),
        (Climate(9, 22, 8), Climate(22, 33, 10), Climate(9, 20, 11), Climate(-3, 7, 4)),
        (
            "Terracotta army | 兵马俑",
            "City wall by bicycle | 骑行城墙",
            "Shaanxi history museum | 陕西历史博物馆",
            "Muslim quarter | 回民街",
            "Big wild goose pagoda | 大雁塔",
        ),
        (
            Hotel("Bell Tower Hotel | 钟楼酒店", 450, quiet=False),
            Hotel("South Gate Courtyard | 南门小院", 380, quiet=True),
        ),
        {"Shanghai": 6.0, "Beijing": 4.5, "Guangzhou": 7.5, "Chengdu": 3.5},
        {"Shanghai": 1340, "Beijing": 1030, "Guangzhou": 1630, "Chengdu": 530},
    ),
    Destination(
        "Harbin",
        "哈尔滨",
        ("snow", "city", "food"),
        (Climate(1, 14, 8), Climate(18, 28, 14), Climate(1, 13, 7), Climate(-22, -11, 5)),
        (
            "Ice and snow world | 冰雪大世界",
            "Central street | 中央大街",
            "Saint Sophia | 圣索菲亚教堂",
            "Siberian tiger park | 东北虎林园",
        ),
        (
            Hotel("Songhua River Hotel | 松花江酒店", 420, quiet=True),
            Hotel("Central Street Inn | 中央大街客栈", 260, quiet=False),
        ),
        {"Shanghai": 3.5, "Beijing": 5.0, "Guangzhou": 5.0, "Chengdu": 4.5},
        {"Shanghai": 2200, "Beijing": 1100, "Guangzhou": 2600, "Chengdu": 2400},
    ),
)
